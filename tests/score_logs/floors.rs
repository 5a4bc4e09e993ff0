//! What the sample of pastes keeps: change, logs it applies to, and answers it loses. Measured; `answers_survive_pasting` prints
//! the new figures where it fails.

pub const FLOORS: &[(&str, u32, u32)] = &[];
