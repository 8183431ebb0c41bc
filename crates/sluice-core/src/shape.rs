//! The shape of a result: enough of a RowDescription to tell whether a client that was told one shape would
//! misread another.

use std::{hash::Hasher, num::NonZeroU64};

use foldhash::fast::FixedState;

/// The shape of a statement's result: its columns' names and types, whatever table they come from and whatever format
/// they are sent in. PostgreSQL compares no more (`RevalidateCachedQuery`). Of a name only its beginning in ASCII counts:
/// what follows comes in the encoding that the client has at that moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape(NonZeroU64);

/// Of a column's fixed part (PostgreSQL documentation, 55.7, RowDescription): table and attribute, then type, its size
/// and modifier. The format code behind them is the portal's, not the statement's.
const ORIGIN_BYTES: usize = 6;
const COLUMN_BYTES: usize = 16;
const FORMAT_BYTES: usize = 2;

impl Shape {
    /// Of a statement that returns no rows.
    pub fn none() -> Self {
        Self::of(b"")
    }

    /// Of the body of a RowDescription.
    pub fn of(body: &[u8]) -> Self {
        let mut hasher = std::hash::BuildHasher::build_hasher(&FixedState::with_seed(0));
        let (count, mut rest) = body.split_at(body.len().min(2));
        hasher.write(count);
        while let Some((name, tail)) = sluice_wire::message::split_cstr(rest) {
            let ascii = name.iter().take_while(|byte| byte.is_ascii()).count();
            hasher.write(&name[..ascii]);
            hasher.write_u8(u8::from(ascii < name.len()));
            let (fixed, tail) = tail.split_at(tail.len().min(COLUMN_BYTES));
            hasher.write(fixed.get(ORIGIN_BYTES..).unwrap_or_default());
            rest = tail.get(FORMAT_BYTES..).unwrap_or_default();
        }
        Self(NonZeroU64::new(hasher.finish()).unwrap_or(NonZeroU64::MIN))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(name: &str, oid: u32, format: u16) -> Vec<u8> {
        let mut out = [name.as_bytes(), &[0; 7], &oid.to_be_bytes(), &[0, 4, 0, 0, 0, 0]].concat();
        out.extend_from_slice(&format.to_be_bytes());
        out
    }

    #[test]
    fn the_encoding_of_names_does_not_matter() {
        let of = |name: &[u8]| Shape::of(&[b"\0\x01", name, &[0; 7], &[0, 0, 0, 23, 0, 4, 0, 0, 0, 0, 0, 0]].concat());
        assert_eq!(of("größe".as_bytes()), of(b"gr\xf6\xdfe"));
        assert_ne!(of("größe".as_bytes()), of("größe".as_bytes().split_at(1).1));
        assert_ne!(of("größe".as_bytes()), of(b"gr"));
    }

    #[test]
    fn formats_and_origins_do_not_matter_and_all_else_does() {
        let body = |columns: &[Vec<u8>]| [&(columns.len() as u16).to_be_bytes()[..], &columns.concat()].concat();
        let one = Shape::of(&body(&[column("a", 23, 0), column("b", 25, 0)]));
        assert_eq!(one, Shape::of(&body(&[column("a", 23, 1), column("b", 25, 1)])));
        let mut elsewhere = column("a", 23, 0);
        elsewhere[3] = 7;
        assert_eq!(one, Shape::of(&body(&[elsewhere, column("b", 25, 0)])));
        assert_ne!(one, Shape::of(&body(&[column("a", 20, 0), column("b", 25, 0)])));
        assert_ne!(one, Shape::of(&body(&[column("a", 23, 0)])));
        assert_ne!(one, Shape::of(&body(&[column("a", 23, 0), column("c", 25, 0)])));
        assert_ne!(one, Shape::none());
        // `SELECT FROM t` returns rows.
        assert_ne!(Shape::of(&body(&[])), Shape::none());
    }
}
