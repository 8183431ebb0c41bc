//! Fewer points where there are more than can be seen.

/// Points of a line that are worth drawing.
pub(super) const POINTS_MAX: usize = 600;

/// The indices of at most [`POINTS_MAX`] values that draw the same line: of each bucket the first, the lowest, the
/// highest and the last, so that no spike is lost.
pub(super) fn thin(values: &[f64]) -> Vec<usize> {
    if values.len() <= POINTS_MAX {
        return (0..values.len()).collect();
    }
    let size = values.len().div_ceil(POINTS_MAX / 4);
    let mut kept = Vec::with_capacity(POINTS_MAX);
    for from in (0..values.len()).step_by(size) {
        let to = (from + size).min(values.len());
        let by_value = |a: &usize, b: &usize| values[*a].total_cmp(&values[*b]);
        let (lowest, highest) = ((from..to).min_by(by_value), (from..to).max_by(by_value));
        let mut bucket: Vec<usize> = [Some(from), lowest, highest, Some(to - 1)].into_iter().flatten().collect();
        bucket.sort_unstable();
        bucket.dedup();
        kept.extend(bucket);
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_points_stay() {
        assert_eq!(thin(&[3.0, 1.0, 2.0]), [0, 1, 2]);
        assert!(thin(&[]).is_empty());
    }

    #[test]
    fn spikes_and_ends_stay() {
        for count in [601, 3_000, 86_401] {
            let mut values: Vec<f64> = (0..count).map(|index| f64::from(index % 7)).collect();
            values[357] = 1e6;
            values[358] = -5.0;
            let kept = thin(&values);
            assert!(kept.len() <= POINTS_MAX, "{}", kept.len());
            assert!(kept.is_sorted() && kept.contains(&357) && kept.contains(&358), "{count}");
            assert_eq!((kept.first(), kept.last()), (Some(&0), Some(&(values.len() - 1))));
        }
    }
}
