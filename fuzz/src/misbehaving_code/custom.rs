//! Custom values that misbehave when they are collated, converted, pinned and formatted.

use std::fmt;
use std::sync::Arc;

use slotline::BoxError;
use slotline_value::{Collation, CustomValue, Value, default_collate, default_convert};

use super::{Script, Site, Tracked, caught, discard};

/// A misbehaving custom value. Its drop does not panic: if a sample panicked when it is dropped,
/// rustc would leak the result of `default_collate` (see `FaultySample::write`).
struct Odd(Tracked);

impl Odd {
    fn value(script: &Arc<Script>) -> Value {
        Value::custom(Self(script.quiet()))
    }

    fn misbehave(&self) -> Result<Value, BoxError> {
        let script = &self.0.script;
        self.0.check();
        match script.fault(Site::Collate, 6)? {
            3 => Ok(Value::List(vec![Self::value(script), Value::Bool(true)].into())),
            4 => Ok(Value::map([("a", Self::value(script))])),
            5 => Ok(Value::Int(3)),
            _ => Ok(Self::value(script)),
        }
    }
}

impl fmt::Debug for Odd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.script.ask(Site::Words, 2) {
            1 if !std::thread::panicking() => self.0.script.panic(),
            2 => Err(fmt::Error),
            _ => f.write_str("odd"),
        }
    }
}

impl CustomValue for Odd {
    fn collate(batch: &[&Self], collation: &Collation<'_>) -> Result<Value, BoxError> {
        let script = &batch[0].0.script;
        match script.ask(Site::Collate, 3) {
            // Collates an empty batch, or other values, whose errors then name the key `a`.
            1 => Ok(default_collate::<Value>([])?),
            2 => Ok(collation.at_key("a").collate(&[&Value::Int(1), &Value::Bool(true)])?),
            _ => batch[batch.len() - 1].misbehave(),
        }
    }

    fn convert(self: Arc<Self>) -> Result<Value, BoxError> {
        self.misbehave()
    }

    fn pin_memory(self: Arc<Self>) -> Result<Value, BoxError> {
        self.convert()
    }
}

/// Collates and converts custom values.
pub(super) fn values(script: &Arc<Script>) {
    for way in 0..6 {
        let made = caught(|| {
            let sample = || match way {
                0 | 1 => Odd::value(script),
                2 | 3 => Value::map([("x", Odd::value(script)), ("y", Value::Int(1))]),
                _ => Value::List(vec![Odd::value(script), Odd::value(script)].into()),
            };
            let made =
                if way % 2 == 0 { default_collate([sample(), sample(), sample()]) } else { default_convert(sample()) };
            match made {
                Ok(value) => {
                    caught(|| format!("{value:?}"));
                    discard(value.pin_memory());
                }
                Err(error) => {
                    caught(|| format!("{error} {error:?}"));
                    discard(error);
                }
            }
        });
        discard(made);
    }
}
