//! From sealed to durable: writing batches, one leader who flushes for all, and what failures do.

use std::sync::Arc;

use super::{Batch, Log, LogState};
use crate::{backing::BackingError, error::DiskError, format::superblock::LogPosition};

impl Log {
    /// Writes a sealed batch. Lack of space stalls it; any other failure poisons the store. Then it
    /// stays in memory, so that it can be read.
    pub(super) fn write(&self, batch: Arc<Batch>) -> Result<(), DiskError> {
        let result = {
            let bytes = batch.bytes.read();
            let at = u64::from(batch.segment) * u64::from(self.shape.segment_len)
                + u64::from(batch.offset);
            self.backing.write(at, &[bytes.bytes()])
        };
        let seq = batch.seq;
        let outcome = match result {
            Ok(()) => {
                // Before it counts as written: once it does, its segment can be freed and reused,
                // and readers must not find old bytes for it here.
                self.forget(batch);
                let mut log = self.state.lock();
                log.written_early.insert(seq);
                while log.written_early.first() == Some(&(log.written + 1)) {
                    log.written_early.pop_first();
                    log.written += 1;
                }
                Ok(())
            }
            Err(error) if error.is_no_space() => {
                self.state.lock().stalled.push(batch);
                Err(beneath_full(&error))
            }
            Err(error) => Err(self.fail(&error)),
        };
        self.changed.notify_all();
        outcome
    }

    /// Tries again to write what the backing had no space for.
    pub(crate) fn retry_stalled(&self) -> Result<(), DiskError> {
        loop {
            let Some(batch) = self.state.lock().stalled.pop() else {
                return Ok(());
            };
            self.write(batch)?;
        }
    }

    /// The sequence number up to which everything accepted so far is.
    pub(crate) fn accepted(&self) -> u64 {
        let log = self.state.lock();
        log.accepted()
    }

    /// Returns when every batch up to `target` is durable.
    pub(crate) fn commit(&self, target: u64) -> Result<(), DiskError> {
        {
            let mut log = self.state.lock();
            loop {
                log.fatal().map_or(Ok(()), Err)?;
                if log.durable >= target {
                    return Ok(());
                }
                if !log.committing {
                    break;
                }
                self.changed.wait(&mut log);
            }
            log.committing = true;
        }
        let result = self.lead();
        self.state.lock().committing = false;
        self.changed.notify_all();
        result
    }

    /// Seals, waits for what is being written, flushes.
    fn lead(&self) -> Result<(), DiskError> {
        self.retry_stalled()?;
        let (sealed, goal) = {
            let mut log = self.state.lock();
            let sealed = self.seal(&mut log);
            (sealed, log.at.seq - 1)
        };
        if let Some(batch) = sealed {
            self.write(batch)?;
        }
        {
            let mut log = self.state.lock();
            while log.written < goal {
                log.error().map_or(Ok(()), Err)?;
                self.changed.wait(&mut log);
            }
        }
        self.flush_backing()?;
        let mut log = self.state.lock();
        log.durable = log.durable.max(goal);
        Ok(())
    }

    /// Flushes the backing; a failure poisons the store.
    pub(crate) fn flush_backing(&self) -> Result<(), DiskError> {
        #[cfg(test)]
        if self.sabotage == Some(crate::tests::Sabotage::SkipSync) {
            return Ok(());
        }
        self.backing.flush().map_err(|error| self.fail(&error))
    }

    /// Poisons the store.
    pub(crate) fn fail(&self, error: &BackingError) -> DiskError {
        let reason = format!("a call on {} failed: {error}", self.backing.name());
        let mut log = self.state.lock();
        log.poison.get_or_insert(reason);
        let error = log.fatal().expect("just poisoned");
        drop(log);
        self.changed.notify_all();
        error
    }

    /// Seals and writes the open batch; where the log is then.
    pub(crate) fn cut(&self) -> Result<LogPosition, DiskError> {
        let (sealed, at) = {
            let mut log = self.state.lock();
            log.error().map_or(Ok(()), Err)?;
            self.drop_open_if_empty(&mut log);
            let sealed = self.seal(&mut log);
            log.since_checkpoint = 0;
            (sealed, log.at)
        };
        if let Some(batch) = sealed {
            self.write(batch)?;
        }
        Ok(at)
    }

    /// Ends the segment the log is in, so that it can be collected.
    pub(crate) fn leave_segment(&self) -> Result<(), DiskError> {
        self.cut()?;
        let mut log = self.state.lock();
        self.drop_open_if_empty(&mut log);
        // A segment that nothing was written to has nothing to collect.
        if log.open.is_none() && log.at.offset > 0 {
            log.at.offset = self.shape.segment_len;
        }
        Ok(())
    }

    fn drop_open_if_empty(&self, log: &mut LogState) {
        if log.open.as_ref().is_some_and(|open| open.table.is_empty()) {
            self.drop_open(log);
        }
    }
}

fn beneath_full(error: &BackingError) -> DiskError {
    DiskError::NoSpace(format!(
        "the backing is full ({error}); what was flushed is safe"
    ))
}
