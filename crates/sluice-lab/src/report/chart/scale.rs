//! Scales: where on an axis a value stands, and which values are written beside it.

use super::super::number;

/// The way in which values are spread over an axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Scale {
    Linear { from: f64, to: f64 },
    Log { from: f64, to: f64 },
}

/// A value that is written beside an axis.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Tick {
    /// Its position, as a share of the axis.
    pub(super) share: f64,
    /// The value.
    pub(super) label: String,
    /// Whether it is left out where there is little room.
    pub(super) is_minor: bool,
}

/// A scale with its ticks.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Axis {
    pub(super) scale: Scale,
    pub(super) ticks: Vec<Tick>,
}

/// Steps of a time axis, in seconds.
const TIME_STEPS_S: [f64; 16] =
    [1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0, 3600.0, 7200.0, 14_400.0, 86_400.0];
/// More ticks than these no time axis has.
const TIME_TICKS_MAX: f64 = 7.0;
/// Decades from which on only their powers of ten are written.
const DECADES_MANY: f64 = 2.5;
/// More ticks than these on a logarithmic axis are too many for a phone.
const LOG_TICKS_MANY: usize = 4;
/// Powers of ten that an axis may span; what lies further down stands on its edge.
const DECADES_MAX: i32 = 9;

impl Scale {
    /// The position of a value, from 0 to 1; values beyond an end stand on it.
    pub(super) fn share(self, value: f64) -> f64 {
        let share = match self {
            Self::Linear { from, to } => (value - from) / (to - from),
            Self::Log { from, to } => (value.max(from) / from).ln() / (to / from).ln(),
        };
        if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 }
    }
}

impl Axis {
    /// From zero to somewhat above the highest value.
    pub(super) fn from_zero(highest: f64) -> Self {
        let highest = if highest.is_finite() && highest > 0.0 { highest } else { 1.0 };
        let step = round_up(highest / 4.0);
        let steps = (highest / step).ceil().max(1.0);
        let scale = Scale::Linear { from: 0.0, to: steps * step };
        Self::with_ticks(scale, (0..=steps as u32).map(|count| f64::from(count) * step))
    }

    /// From zero to the end of the time.
    pub(super) fn time(end_s: f64) -> Self {
        let end_s = if end_s.is_finite() && end_s > 0.0 { end_s } else { 1.0 };
        let fits = |step_s: &&f64| end_s / **step_s <= TIME_TICKS_MAX;
        let step_s = TIME_STEPS_S.iter().find(fits).copied().unwrap_or(end_s);
        let ticks = (end_s / step_s).floor() as u32;
        Self::with_ticks(Scale::Linear { from: 0.0, to: end_s }, (0..=ticks).map(|count| f64::from(count) * step_s))
    }

    /// Logarithmic, from 1, 2 or 5 times a power of ten to another.
    pub(super) fn log(lowest: f64, highest: f64) -> Self {
        let highest = if highest.is_finite() && highest > 0.0 { highest } else { 1.0 };
        let lowest = if lowest.is_finite() && lowest > 0.0 { lowest.min(highest) } else { highest };
        let lowest = lowest.max(highest / 10_f64.powi(DECADES_MAX));
        let (mut from, to) = (round_down(lowest), round_up(highest));
        if to <= from {
            from = round_down(from * 0.99);
        }
        let (first, last) = (from.log10().floor() as i32, to.log10().ceil() as i32);
        let factors: &[f64] = if (to / from).log10() > DECADES_MANY { &[1.0] } else { &[1.0, 2.0, 5.0] };
        let values = (first..=last).flat_map(|power| factors.iter().map(move |factor| factor * 10_f64.powi(power)));
        let values = values.filter(|value| *value >= 0.999 * from && *value <= 1.001 * to);
        let mut axis = Self::with_ticks(Scale::Log { from, to }, values);
        if axis.ticks.len() > LOG_TICKS_MANY {
            axis.spare_every_other();
        }
        axis
    }

    /// Logarithmic, with these steps as its ticks and some room at both ends.
    pub(super) fn steps(steps: &[f64]) -> Self {
        let lowest = steps.iter().copied().fold(f64::INFINITY, f64::min);
        let highest = steps.iter().copied().fold(0.0, f64::max);
        let mut axis = Self::with_ticks(Scale::Log { from: lowest / 1.2, to: highest * 1.2 }, steps.iter().copied());
        axis.spare_every_other();
        axis
    }

    /// Leaves out every other tick where there is little room, but not the last.
    fn spare_every_other(&mut self) {
        for tick in self.ticks.iter_mut().rev().skip(1).step_by(2) {
            tick.is_minor = true;
        }
    }

    fn with_ticks(scale: Scale, values: impl Iterator<Item = f64>) -> Self {
        let tick = |value: f64| Tick { share: scale.share(value), label: label(value), is_minor: false };
        Self { scale, ticks: values.map(tick).collect() }
    }
}

/// As short as its digits allow.
fn label(value: f64) -> String {
    if value.abs() >= 1e6 {
        return format!("{}M", number::trimmed(value / 1e6, 2));
    }
    let digits = if value.abs() >= 100.0 { 0 } else { 4 };
    number::trimmed(value, digits)
}

/// The least of 1, 2, 5 times a power of ten that is no less.
fn round_up(value: f64) -> f64 {
    let power = 10_f64.powf(value.log10().floor());
    let factor = [1.0, 2.0, 5.0].into_iter().find(|factor| factor * power >= 0.999_999 * value);
    factor.unwrap_or(10.0) * power
}

/// The largest that is no more.
fn round_down(value: f64) -> f64 {
    let power = 10_f64.powf(value.log10().floor());
    let factor = [5.0, 2.0, 1.0].into_iter().find(|factor| factor * power <= 1.000_001 * value);
    factor.unwrap_or(1.0) * power
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: &Axis) -> String {
        axis.ticks.iter().map(|tick| tick.label.as_str()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn ticks() {
        for (axis, expected) in [
            (Axis::from_zero(2903.1), "0 1,000 2,000 3,000"),
            (Axis::from_zero(0.07), "0 0.02 0.04 0.06 0.08"),
            (Axis::from_zero(16.0), "0 5 10 15 20"),
            (Axis::from_zero(9.3e5), "0 500,000 1M"),
            (Axis::from_zero(0.0), "0 0.5 1"),
            (Axis::from_zero(f64::NAN), "0 0.5 1"),
            (Axis::time(300.0), "0 60 120 180 240 300"),
            (Axis::time(12.4), "0 2 4 6 8 10 12"),
            (Axis::time(0.0), "0 1"),
            (Axis::log(0.9, 690.0), "0.1 1 10 100 1,000"),
            (Axis::log(3.0, 40.0), "2 5 10 20 50"),
            (Axis::log(10.0, 10.0), "5 10"),
            (Axis::log(0.0, 0.0), "0.5 1"),
            (Axis::steps(&[64.0, 1024.0, 16384.0]), "64 1,024 16,384"),
        ] {
            let all_but_the_first = |text: &str| text.split_once(' ').map(|(_, rest)| rest.to_owned());
            let found = labels(&axis);
            // A logarithmic axis begins where its values do, which may be above its first power of ten.
            let is_log = matches!(axis.scale, Scale::Log { .. });
            assert!(found == expected || is_log && Some(found.clone()) == all_but_the_first(expected), "{axis:?}");
            assert!(axis.ticks.iter().all(|tick| (0.0..=1.0).contains(&tick.share)), "{axis:?}");
        }
    }

    #[test]
    fn places() {
        let log = Scale::Log { from: 1.0, to: 100.0 };
        assert_eq!([0.0, 1.0, 10.0, 100.0, 1e9].map(|value| log.share(value)), [0.0, 0.0, 0.5, 1.0, 1.0]);
        let linear = Scale::Linear { from: 0.0, to: 50.0 };
        assert_eq!([-1.0, 0.0, 25.0, f64::NAN].map(|value| linear.share(value)), [0.0, 0.0, 0.5, 0.0]);
    }

    #[test]
    fn where_room_is_short_every_other_step_is_left_out() {
        let minor = |steps: &[f64]| Axis::steps(steps).ticks.iter().map(|tick| tick.is_minor).collect::<Vec<_>>();
        assert_eq!(minor(&[1.0, 2.0, 4.0]), [false, true, false]);
        assert_eq!(minor(&[1.0, 2.0, 4.0, 8.0]), [true, false, true, false]);
    }
}
