//! Constants of the model with their origin in their type, so that a constant without an origin does not compile.
//!
//! `Constant<T>` is a value and its `Provenance`. `of_profile` lists every constant that a run of a profile uses,
//! `inputs::of_scenario` the assumptions of a scenario; `flatwater run --on sim --constants` prints both. A row of a
//! case study that a constant was fitted to is calibration, never proof.

pub mod inputs;
mod listing;

pub use self::listing::{Entry, calibration, of_profile, text};

/// Origin of a constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Provenance {
    /// Read in the source of a kernel.
    Kernel { file: &'static str, function: &'static str, version: &'static str },
    /// Measured by a program on a machine.
    Measured { program: &'static str },
    /// Stated by a published text.
    Published { text: &'static str },
    /// Chosen so that this published row results.
    Fitted { row: &'static str },
    /// A plausible size, with the reason.
    Assumed { reason: &'static str },
}

impl Provenance {
    /// One word, for tables.
    #[must_use]
    pub fn kind(self) -> &'static str {
        match self {
            Provenance::Kernel { .. } => "kernel",
            Provenance::Measured { .. } => "measured",
            Provenance::Published { .. } => "published",
            Provenance::Fitted { .. } => "fitted",
            Provenance::Assumed { .. } => "assumed",
        }
    }
}

impl std::fmt::Display for Provenance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Provenance::Kernel { file, function, version } => write!(f, "{file}: {function}, {version}"),
            Provenance::Measured { program } => write!(f, "{program}"),
            Provenance::Published { text } => write!(f, "{text}"),
            Provenance::Fitted { row } => write!(f, "{row}"),
            Provenance::Assumed { reason } => write!(f, "{reason}"),
        }
    }
}

/// A value of the model and its origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Constant<T> {
    value: T,
    provenance: Provenance,
}

impl<T: Copy> Constant<T> {
    /// Read in `function` of `file` of this version.
    #[must_use]
    pub const fn kernel(value: T, file: &'static str, function: &'static str, version: &'static str) -> Constant<T> {
        Constant { value, provenance: Provenance::Kernel { file, function, version } }
    }

    #[must_use]
    pub const fn measured(value: T, program: &'static str) -> Constant<T> {
        Constant { value, provenance: Provenance::Measured { program } }
    }

    #[must_use]
    pub const fn published(value: T, text: &'static str) -> Constant<T> {
        Constant { value, provenance: Provenance::Published { text } }
    }

    /// Chosen so that this row of docs/simulator.md results.
    #[must_use]
    pub const fn fitted(value: T, row: &'static str) -> Constant<T> {
        Constant { value, provenance: Provenance::Fitted { row } }
    }

    #[must_use]
    pub const fn assumed(value: T, reason: &'static str) -> Constant<T> {
        Constant { value, provenance: Provenance::Assumed { reason } }
    }

    #[must_use]
    #[inline]
    pub const fn get(&self) -> T {
        self.value
    }

    #[must_use]
    pub const fn provenance(&self) -> Provenance {
        self.provenance
    }
}

/// Declares constants of a module and the list of them.
macro_rules! constants {
    ($($(#[$doc:meta])* $vis:vis const $name:ident: $type:ty = $kind:ident($value:expr, $($from:expr),+);)+) => {
        $($(#[$doc])* $vis const $name: $crate::constant::Constant<$type> =
            $crate::constant::Constant::$kind($value, $($from),+);)+

        /// All of them, for the listing.
        pub const CONSTANTS: &[$crate::constant::Entry] = &[$($crate::constant::Entry {
            module: module_path!(),
            name: stringify!($name),
            value: $name.get() as u64,
            provenance: $name.provenance(),
        }),+];
    };
}
pub(crate) use constants;
