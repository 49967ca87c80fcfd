//! A socket that answers whoever asks: one document, and the end of the stream.
//!
//! For counters (`narrows memory stat`), the status of a migration, and Prometheus. Each asker is answered on a thread
//! of its own within 5 s, and at most 16 at once, so one that does not read holds nobody up.

use std::{
    io::{self, Read, Write},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use crate::{
    address::Address,
    deadline::deadline,
    listener::{ListenError, Listener, Stop},
    transport::{self, Transport, Tuning},
};

/// Longest document that [`ask`] takes, in bytes.
pub const DOCUMENT_LEN_MAX: u64 = 16 << 20;
/// How long an asker may take for its question and for taking the answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Askers answered at once.
const ASKERS_MAX: usize = 16;
/// Most that is read of a question.
const QUESTION_LEN_MAX: usize = 4096;

/// Gives the document of the moment.
pub type Source = Arc<dyn Fn() -> Vec<u8> + Send + Sync>;

/// Answers until it is dropped.
#[derive(Debug)]
pub struct Answers {
    local: Address,
    stop: Stop,
    thread: Option<JoinHandle<()>>,
}

/// What is spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Speech {
    /// The document at once.
    Plain,
    /// HTTP/1.1: the document, of this content type, is the body of every answer.
    Http(&'static str),
}

impl Answers {
    /// Answers at `address` with what `source` gives at each call. Nothing authenticates the asker, so an address that
    /// others reach is the caller's decision.
    ///
    /// # Errors
    /// The address is taken, or cannot be listened on, or the system gives no thread.
    pub fn start(address: &Address, speech: Speech, source: Source) -> Result<Self, ListenError> {
        let listener = Listener::bind(address, &Tuning::default())?;
        let (local, stop) = (listener.local().clone(), listener.stopper());
        let askers = Arc::new(AtomicUsize::new(0));
        let accept = move || {
            for transport in listener.incoming() {
                let place = Place::take(&askers);
                let source = source.clone();
                if place.0.load(Ordering::SeqCst) > ASKERS_MAX {
                    tracing::debug!("too many ask at once");
                    continue;
                }
                let answer = move || {
                    let _place = place;
                    let mut transport = transport;
                    let abort = transport.shutdown.clone();
                    // Who breaks off does not want to know.
                    let _ = deadline(&abort, PATIENCE, || speak(&mut transport, speech, &source));
                };
                if let Err(error) = crate::thread::spawn("answer", answer) {
                    tracing::warn!("nobody answers an asker: {error}");
                }
            }
        };
        let thread = crate::thread::spawn("answers", accept).map_err(|source| ListenError::Io {
            address: local.clone(),
            source,
        })?;
        Ok(Self {
            local,
            stop,
            thread: Some(thread),
        })
    }

    /// Where it answers, with the port that the system chose.
    #[must_use]
    pub fn local(&self) -> &Address {
        &self.local
    }
}

impl Drop for Answers {
    fn drop(&mut self) {
        self.stop.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// One of those who are answered.
struct Place(Arc<AtomicUsize>);

impl Place {
    fn take(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(count.clone())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

fn speak(transport: &mut Transport, speech: Speech, source: &Source) -> io::Result<()> {
    let (reader, writer) = (&mut transport.reader, &mut transport.writer);
    if let Speech::Http(content_type) = speech {
        // The request says nothing that we need, but it must be read before the answer, else the close is a reset.
        let mut question = [0; QUESTION_LEN_MAX];
        let mut len = 0;
        while len < question.len() && !question[..len].ends_with(b"\r\n\r\n") {
            match reader.read(&mut question[len..])? {
                0 => break,
                more => len += more,
            }
        }
        let document = source();
        write!(
            writer,
            "HTTP/1.1 200 OK\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            document.len()
        )?;
        writer.write_all(&document)?;
    } else {
        writer.write_all(&source())?;
    }
    writer.finish()
}

/// Asks at `address` for a plain document.
///
/// # Errors
/// Nobody answers there, or not to the end within 5 s, or with more than [`DOCUMENT_LEN_MAX`].
pub fn ask(address: &Address) -> io::Result<Vec<u8>> {
    let mut transport =
        transport::connect(address, &Tuning::default()).map_err(io::Error::other)?;
    let abort = transport.shutdown.clone();
    let mut document = Vec::new();
    let read = deadline(&abort, PATIENCE, || {
        let mut reader = (&mut transport.reader).take(DOCUMENT_LEN_MAX);
        reader.read_to_end(&mut document)
    });
    read.map_err(io::Error::from)?.map(|_| document)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: askers that do not read or say nothing hold up nobody. Method: some of both, then one who means it.
    #[test]
    fn one_who_does_not_read_holds_nobody_up() {
        let document = vec![b'x'; 8 << 20];
        let given = document.clone();
        let any = Address::parse("127.0.0.1:0", 0).unwrap();
        let answers = Answers::start(&any, Speech::Plain, Arc::new(move || given.clone())).unwrap();
        let deaf: Vec<_> = (0..5)
            .map(|_| transport::connect(answers.local(), &Tuning::default()).unwrap())
            .collect();
        let begun = std::time::Instant::now();
        assert!(ask(answers.local()).unwrap() == document);
        assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
        drop(deaf);
    }

    #[test]
    fn a_scraper_gets_the_document_as_a_body() {
        let any = Address::parse("127.0.0.1:0", 0).unwrap();
        let source = Arc::new(|| b"a 1\n".to_vec());
        let answers = Answers::start(&any, Speech::Http("text/plain"), source).unwrap();
        let mut scraper = transport::connect(answers.local(), &Tuning::default()).unwrap();
        scraper
            .writer
            .write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
            .unwrap();
        let mut answer = String::new();
        scraper.reader.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\na 1\n"));
    }
}
