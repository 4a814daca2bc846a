//! The figures of one list of numbers.

use serde::Serialize;

#[derive(Debug, PartialEq, Serialize)]
pub struct Summary {
    pub total: f64,
    pub mean: f64,
    pub median: f64,
    pub min: f64,
    pub max: f64,
}

impl Summary {
    /// The figures of `values`, to a hundredth; nothing of none.
    pub fn of(values: &[f64]) -> Option<Self> {
        let sorted = sorted(values.to_vec());
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let total: f64 = values.iter().sum();
        Some(Self {
            total: hundredths(total),
            mean: hundredths(total / values.len() as f64),
            median: hundredths(median(&sorted)),
            min,
            max,
        })
    }
}

/// The values that lie more than `threshold` deviations from the median, each with its index and how many.
///
/// The deviation is the median absolute one, scaled to a standard deviation (Iglewicz and Hoaglin, 1993): unlike the standard
/// deviation it does not grow with the very values that it is to find.
pub fn outliers(values: &[f64], threshold: f64) -> Vec<(usize, f64)> {
    const TO_STANDARD: f64 = 1.4826;
    if values.is_empty() {
        return Vec::new();
    }
    let centre = median(&sorted(values.to_vec()));
    let deviation = TO_STANDARD * median(&sorted(values.iter().map(|value| (value - centre).abs()).collect()));
    if deviation == 0.0 {
        return Vec::new();
    }
    let far = values.iter().enumerate().map(|(index, value)| (index, hundredths((value - centre) / deviation)));
    far.filter(|(_, deviations)| deviations.abs() > threshold).collect()
}

fn sorted(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_by(f64::total_cmp);
    values
}

fn median(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[middle] } else { f64::midpoint(sorted[middle - 1], sorted[middle]) }
}

fn hundredths(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_even_list_has_its_median_between_two() {
        let summary = Summary::of(&[4.0, 1.0, 3.0, 2.0]).unwrap();
        assert_eq!(summary, Summary { total: 10.0, mean: 2.5, median: 2.5, min: 1.0, max: 4.0 });
        assert_eq!(Summary::of(&[]), None);
    }

    #[test]
    fn one_wild_value_stands_out_on_either_side_and_a_flat_list_has_none() {
        let mut values: Vec<f64> = (0..20).map(|n| f64::from(n % 5)).collect();
        values.push(1000.0);
        values.push(-1000.0);
        let found: Vec<usize> = outliers(&values, 8.0).into_iter().map(|(index, _)| index).collect();
        assert_eq!(found, [20, 21]);
        assert_eq!(outliers(&[5.0; 9], 8.0), []);
        assert_eq!(outliers(&[], 8.0), []);
    }
}
