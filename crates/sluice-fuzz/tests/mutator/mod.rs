//! Mutations without a fuzzer: bit flips, lengths at their edges, cuts, repeats and splices, from one seed.

use sluice_sim::Rng;

/// Longer inputs are cut, in bytes.
const INPUT_BYTES_MAX: usize = 2048;

/// Bytes that mean something in the protocol or stand at an edge.
const TELLING: [u8; 12] = [0, 1, 4, 5, 8, 0x7f, 0x80, 0xff, b'S', b'P', b'Z', b'E'];

/// Makes inputs out of those of a corpus.
pub(crate) struct Mutator {
    corpus: Vec<Vec<u8>>,
    rng: Rng,
}

impl Mutator {
    pub(crate) fn new(corpus: Vec<Vec<u8>>) -> Self {
        Self { corpus, rng: Rng::new(0x5151_5151_2026_0001) }
    }

    pub(crate) fn next_input(&mut self) -> Vec<u8> {
        let mut input = self.pick();
        for _ in 0..=self.below(6) {
            self.mutate(&mut input);
        }
        input.truncate(INPUT_BYTES_MAX);
        input
    }

    fn below(&mut self, limit: usize) -> usize {
        self.rng.index(limit)
    }

    fn pick(&mut self) -> Vec<u8> {
        let number = self.below(self.corpus.len());
        self.corpus[number].clone()
    }

    fn telling(&mut self) -> u8 {
        self.rng.pick(&TELLING)
    }

    /// A stretch of an input of `length` bytes.
    fn stretch(&mut self, length: usize) -> std::ops::Range<usize> {
        let start = self.below(length + 1);
        start..start + self.below(length - start + 1)
    }

    fn mutate(&mut self, input: &mut Vec<u8>) {
        let at = self.below(input.len());
        match self.below(10) {
            0 | 1 if !input.is_empty() => input[at] ^= 1 << self.below(8),
            2 if !input.is_empty() => input[at] = self.telling(),
            3 if !input.is_empty() => input[at] = self.rng.next() as u8,
            4 if input.len() >= 4 => self.set_length(input),
            5 => {
                let byte = self.telling();
                input.insert(at, byte);
            }
            6 => {
                let gone = self.stretch(input.len());
                input.drain(gone);
            }
            7 => input.truncate(at),
            8 => {
                let again = self.stretch(input.len());
                let again = input[again].to_vec();
                input.splice(at..at, again);
            }
            _ => {
                let other = self.pick();
                let part = self.stretch(other.len());
                input.splice(at..at, other[part].iter().copied());
            }
        }
    }

    /// Four bytes become a length: of what follows, or one at an edge.
    fn set_length(&mut self, input: &mut [u8]) {
        let at = self.below(input.len() - 3);
        let left = (input.len() - at) as u32;
        let lengths = [0, 3, 4, left, left.wrapping_sub(1), left + 1, 0x3fff_ffff, 0x4000_0000, 0x7fff_ffff, u32::MAX];
        let length = lengths[self.below(lengths.len())];
        input[at..at + 4].copy_from_slice(&length.to_be_bytes());
    }
}
