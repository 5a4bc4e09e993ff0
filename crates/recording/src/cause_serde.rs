//! JSON form of a cause: its name. Separate from `cause/`, which must have no dependencies.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Cause;

impl Serialize for Cause {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for Cause {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Cause, D::Error> {
        let name = String::deserialize(deserializer)?;
        Cause::from_name(&name)
            .ok_or_else(|| Error::custom(format!("'{name}' is not a cause that this flatwater knows")))
    }
}
