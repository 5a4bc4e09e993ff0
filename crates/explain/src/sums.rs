//! Sums of recorded numbers. A damaged recording may contain any number, so these sums stop at the largest value.

/// Adds to a sum.
pub fn add_to(sum: &mut u64, more: u64) {
    *sum = sum.saturating_add(more);
}

/// The sum of these numbers.
#[must_use]
pub fn total(numbers: impl IntoIterator<Item = u64>) -> u64 {
    numbers.into_iter().fold(0, u64::saturating_add)
}

/// As `total`, of numbers with a sign.
#[must_use]
pub fn total_signed(numbers: impl IntoIterator<Item = i64>) -> i64 {
    numbers.into_iter().fold(0, i64::saturating_add)
}

/// `amount * part / whole`; 0 if `whole` is 0.
#[must_use]
pub fn in_proportion(amount: u64, part: u64, whole: u64) -> u64 {
    // The product of two u64 fits in a u128.
    let product = u128::from(amount).saturating_mul(u128::from(part));
    let share = product.checked_div(u128::from(whole)).unwrap_or(0);
    u64::try_from(share).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::{in_proportion, total, total_signed};

    #[test]
    fn sums_and_shares_stop_at_the_largest_value() {
        assert_eq!(total([u64::MAX, 1]), u64::MAX);
        assert_eq!(total_signed([i64::MIN, -1]), i64::MIN);
        assert_eq!(in_proportion(10, 1, 4), 2);
        assert_eq!(in_proportion(u64::MAX, u64::MAX, 1), u64::MAX);
        assert_eq!(in_proportion(1, 1, 0), 0);
    }
}
