//! Means, medians and the like, of numbers that have none of their own.

/// The mean; none of nothing.
pub fn mean(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let (count, sum) = values.into_iter().fold((0_u64, 0.0), |(count, sum), value| (count + 1, sum + value));
    (count > 0).then(|| sum / count as f64)
}

/// The median; the mean of the middle two of an even number; none of nothing.
pub fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        count if count % 2 == 1 => Some(values[middle]),
        _ => Some(f64::midpoint(values[middle - 1], values[middle])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_means() {
        for (values, median_is, mean_is) in [
            (&[][..], None, None),
            (&[3.0][..], Some(3.0), Some(3.0)),
            (&[9.0, 1.0, 2.0][..], Some(2.0), Some(4.0)),
            (&[4.0, 1.0, 2.0, 9.0][..], Some(3.0), Some(4.0)),
        ] {
            assert_eq!(median(values.iter().copied()), median_is);
            assert_eq!(mean(values.iter().copied()), mean_is);
        }
    }
}
