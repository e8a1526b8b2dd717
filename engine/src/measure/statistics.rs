//! Repetitions in two figures.

/// The median of repetitions, and the least and the most of them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summary {
    /// The one in the middle, or the mean of the two in the middle.
    pub median: f64,
    /// The smallest.
    pub least: f64,
    /// The largest.
    pub most: f64,
    /// How many there are.
    pub count: usize,
}

impl Summary {
    /// Of these values; `None` where there are none.
    pub fn of(values: &[f64]) -> Option<Summary> {
        let mut values = values.to_vec();
        values.sort_by(f64::total_cmp);
        let (&least, &most) = (values.first()?, values.last()?);
        let middle = values.len() / 2;
        let median =
            if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 };
        Some(Summary { median, least, most, count: values.len() })
    }

    /// From the least to the most, in per cent of the median.
    pub fn spread(&self) -> f64 {
        (self.most - self.least) / self.median * 100.0
    }
}
