//! A store's dictionaries, by number.
//!
//! The keeper makes one of cold pages (`keeper`), and from then on packs with it what goes cold. A page names the
//! dictionary it was packed with, which stays as long as such a page does: users are counted where slots change. What
//! dictionaries cost is taken from the budget.

use std::sync::Arc;

use narrows_chains::lzt::dictionary::Dictionary;
use narrows_io::region::FRAME;
use parking_lot::Mutex;

use crate::budget::Budget;

/// Most dictionaries at a time. There are others than the last only while pages of theirs are left.
const BOOKS: usize = 8;

/// The shelf they stand on. Locked after a shard, if both are.
#[derive(Debug)]
pub(crate) struct DictionaryCache {
    budget: Arc<Budget>,
    shelf: Mutex<Shelf>,
}

#[derive(Debug, Default)]
struct Shelf {
    books: [Option<Book>; BOOKS],
    /// The one that pages are packed with.
    last: Option<Number>,
    /// Pages that went cold so far, and how many there will be when it is time for another dictionary.
    cold: u64,
    due: u64,
}

#[derive(Debug)]
struct Book {
    dictionary: Arc<Dictionary>,
    users: u64,
    frames: u64,
}

/// A dictionary's, as objects have it; 0 is none.
pub(crate) type Number = u8;

/// A dictionary is made when so many pages went cold; another when there are twice as many, or `PAGES_MOST` more.
const PAGES_FIRST: u64 = 1024;
const PAGES_MOST: u64 = 1 << 18;

impl DictionaryCache {
    pub(crate) fn new(budget: Arc<Budget>) -> Self {
        Self {
            budget,
            shelf: Mutex::default(),
        }
    }

    /// Notes that so many `pages` went cold. When it is time to make a dictionary, says how many pages it is for: as
    /// many are expected until the next as there were so far.
    pub(crate) fn is_due(&self, pages: u64) -> Option<u64> {
        let mut shelf = self.shelf.lock();
        shelf.cold += pages;
        let cold = shelf.cold;
        if cold < shelf.due.max(PAGES_FIRST) {
            return None;
        }
        shelf.due = cold + cold.min(PAGES_MOST);
        Some(cold.min(PAGES_MOST))
    }

    /// The dictionary of this number, if there is one.
    pub(crate) fn get(&self, number: Number) -> Option<Arc<Dictionary>> {
        let index = index(number)?;
        let shelf = self.shelf.lock();
        shelf
            .books
            .get(index)?
            .as_ref()
            .map(|book| book.dictionary.clone())
    }

    /// The one to pack with.
    pub(crate) fn last(&self) -> Option<(Number, Arc<Dictionary>)> {
        let shelf = self.shelf.lock();
        let number = shelf.last?;
        let book = shelf.books[index(number)?].as_ref()?;
        Some((number, book.dictionary.clone()))
    }

    /// Puts `dictionary` on the shelf as the one to pack with. Says whether there was room for it.
    pub(crate) fn add(&self, dictionary: Dictionary) -> bool {
        let frames = frames(&dictionary);
        let mut shelf = self.shelf.lock();
        let Some(free) = shelf.books.iter().position(Option::is_none) else {
            return false;
        };
        if !self.budget.take(frames) {
            return false;
        }
        shelf.books[free] = Some(Book {
            dictionary: Arc::new(dictionary),
            users: 0,
            frames,
        });
        let before = shelf.last.replace(free as Number + 1);
        self.put_away(&mut shelf, before);
        true
    }

    /// One more object needs it, if it needs any. Says whether it is there.
    pub(crate) fn hold(&self, number: Number) -> bool {
        let Some(index) = index(number) else {
            return true;
        };
        let mut shelf = self.shelf.lock();
        shelf
            .books
            .get_mut(index)
            .and_then(Option::as_mut)
            .map(|book| book.users += 1)
            .is_some()
    }

    /// One object less needs it.
    pub(crate) fn release(&self, number: Number) {
        // Nearly always, and then nothing is to be locked.
        let Some(index) = index(number) else { return };
        let mut shelf = self.shelf.lock();
        if let Some(book) = shelf.books.get_mut(index).and_then(Option::as_mut) {
            book.users -= 1;
            self.put_away(&mut shelf, Some(number));
        }
    }

    /// Takes the last one from the shelf if no page needs it.
    pub(crate) fn forget_unused(&self) {
        let mut shelf = self.shelf.lock();
        let last = shelf.last.take();
        self.put_away(&mut shelf, last);
        shelf.last =
            last.filter(|number| index(*number).is_some_and(|index| shelf.books[index].is_some()));
    }

    /// Takes a dictionary from the shelf that is not the one to pack with, if nobody needs it.
    fn put_away(&self, shelf: &mut Shelf, number: Option<Number>) {
        let Some(index) = number.filter(|_| number != shelf.last).and_then(index) else {
            return;
        };
        if let Some(book) = shelf.books[index].take_if(|book| book.users == 0) {
            self.budget.give(book.frames);
        }
    }

    /// How many there are, and the frames that they cost.
    pub(crate) fn cost(&self) -> (u64, u64) {
        let shelf = self.shelf.lock();
        let books = shelf.books.iter().flatten();
        books.fold((0, 0), |(count, frames), book| {
            (count + 1, frames + book.frames)
        })
    }
}

impl Drop for DictionaryCache {
    fn drop(&mut self) {
        let (_, frames) = self.cost();
        self.budget.give(frames);
    }
}

/// Frames of 4 KiB that a dictionary costs.
pub(crate) fn frames(dictionary: &Dictionary) -> u64 {
    dictionary.memory().div_ceil(FRAME) as u64
}

fn index(number: Number) -> Option<usize> {
    usize::from(number).checked_sub(1)
}
