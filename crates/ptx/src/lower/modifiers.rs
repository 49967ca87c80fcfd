//! The modifiers of an instruction, taken one by one. What is left over is not supported: a
//! modifier that the interpreter does not know must not be ignored.

use crate::num::float::Mode;
use crate::num::soft::Round;
use crate::text::ast::Type;

pub(crate) struct Modifiers<'m> {
    all: &'m [&'m str],
    used: u64,
}

impl<'m> Modifiers<'m> {
    pub(crate) fn new(all: &'m [&'m str]) -> Result<Self, String> {
        if all.len() > 64 {
            return Err("too many modifiers".into());
        }
        Ok(Modifiers { all, used: 0 })
    }

    /// Takes a modifier of this name.
    pub(crate) fn take(&mut self, name: &str) -> bool {
        self.find(|word| (word == name).then_some(())).is_some()
    }

    /// Takes the first modifier for which `f` finds something.
    pub(crate) fn find<T>(&mut self, mut f: impl FnMut(&'m str) -> Option<T>) -> Option<T> {
        for (index, word) in self.all.iter().enumerate() {
            if self.used >> index & 1 == 0
                && let Some(found) = f(word)
            {
                self.used |= 1 << index;
                return Some(found);
            }
        }
        None
    }

    /// Takes the first that is a type.
    pub(crate) fn ty(&mut self) -> Result<Type, String> {
        self.find(Type::parse).ok_or_else(|| "no type".to_owned())
    }

    /// Takes all of these.
    pub(crate) fn ignore(&mut self, names: &[&str]) {
        for name in names {
            while self.take(name) {}
        }
    }

    /// Takes rounding to a floating-point number; nearest if there is none.
    pub(crate) fn round(&mut self) -> Option<Round> {
        self.find(|word| {
            Some(match word {
                "rn" => Round::Nearest,
                "rna" => Round::NearestAway,
                "rz" => Round::Zero,
                "rm" => Round::Down,
                "rp" => Round::Up,
                _ => return None,
            })
        })
    }

    /// Takes rounding, `ftz`, `sat` and `relu`.
    pub(crate) fn mode(&mut self) -> Mode {
        Mode {
            round: self.round().unwrap_or(Round::Nearest),
            ftz: self.take("ftz"),
            sat: self.take("sat"),
            relu: self.take("relu"),
        }
    }

    /// Takes all modifiers, of an instruction that none of them changes.
    pub(crate) fn find_all(&mut self) {
        self.used = u64::MAX;
    }

    /// Fails if a modifier is left.
    pub(crate) fn finish(&self) -> Result<(), String> {
        match (0..self.all.len()).find(|index| self.used >> index & 1 == 0) {
            None => Ok(()),
            Some(index) => Err(format!(".{} is not supported here", self.all[index])),
        }
    }
}
