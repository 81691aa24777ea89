//! The address book: the names and addresses of servers.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use crate::Result;

/// A server's name and address.
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) address: SocketAddr,
}

/// Reads a book: a line for each server.
pub(crate) fn read(path: &Path) -> Result<Vec<Entry>> {
    let text =
        fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    let lines = text.lines().map(str::trim).enumerate().filter(|(_, line)| !line.is_empty());
    let entry = |(nth, line): (usize, &str)| {
        let wrong = || format!("{}, line {}: '{line}' is not NAME ADDRESS:PORT", path.display(), nth + 1);
        let (name, address) = line.split_once(char::is_whitespace).ok_or_else(wrong)?;
        let address = address.trim().parse().map_err(|_| wrong())?;
        Ok(Entry { name: name.to_owned(), address })
    };
    let entries: Vec<Entry> = lines.map(entry).collect::<Result<_>>()?;
    if entries.is_empty() {
        return Err(format!("{} has no server", path.display()).into());
    }
    Ok(entries)
}
