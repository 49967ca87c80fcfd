//! Keyword arguments to options.

use narrows_rest::{Element, FileError, FileOptions, Goal};

use crate::error::Error;

/// How content is packed, as Python says it.
pub(crate) fn options(
    goal: Option<&str>,
    level: Option<u8>,
    dtype: Option<&str>,
    threads: usize,
    chunk: usize,
) -> Result<FileOptions, Error> {
    let goal = match (goal, level) {
        (Some(_), Some(_)) => {
            let what = "give either goal or level".into();
            return Err(FileError::Setting(what).into());
        }
        (Some(goal), None) => goal.parse()?,
        (None, Some(level)) => Goal::Level(level),
        (None, None) => Goal::default(),
    };
    let element = dtype.map(str::parse::<Element>).transpose()?;
    let options = FileOptions::default().goal(goal).element(element);
    Ok(options.threads(threads).chunk_len(chunk))
}
