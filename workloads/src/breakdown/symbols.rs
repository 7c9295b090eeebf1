//! From addresses to functions, by the line tables of the running program.

use std::collections::HashMap;
use std::fs;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use addr2line::{Loader, fallible_iterator::FallibleIterator as _};

/// A function at an address; with inlined ones, an address has several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Its name.
    pub function: String,
    /// Its source file; empty if that is unknown.
    pub file: String,
}

/// The code of the running program in memory, and the file that it is mapped from.
struct Image {
    /// Addresses of the code.
    code: Range<u64>,
    /// Offset of the code in the file.
    offset: u64,
    /// Address of the first byte of the file.
    base: u64,
}

impl Image {
    /// The mappings of `program` in the text of `/proc/self/maps`.
    fn parse(maps: &str, program: &str) -> Option<Image> {
        let (mut base, mut code) = (None, None);
        for line in maps.lines().filter(|line| line.ends_with(program)) {
            let mut fields = line.split_ascii_whitespace();
            let (start, end) = fields.next()?.split_once('-')?;
            let (start, end) =
                (u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?);
            let executable = fields.next()?.contains('x');
            let offset = u64::from_str_radix(fields.next()?, 16).ok()?;
            if offset == 0 {
                base.get_or_insert(start);
            }
            if executable {
                code.get_or_insert((start..end, offset));
            }
        }
        let (code, offset) = code?;
        Some(Image { code, offset, base: base? })
    }
}

/// The symbols of the running program.
pub struct Symbols {
    loader: Loader,
    bytes: Vec<u8>,
    image: Image,
    /// Whether the program may be loaded at any address, so that its own addresses begin at 0.
    moves: bool,
    known: HashMap<u64, Arc<[Frame]>>,
}

impl Symbols {
    /// Those of the running program.
    ///
    /// # Errors
    /// A sentence, if the program cannot be read or has no line tables.
    pub fn of_this_program() -> Result<Symbols, String> {
        let path = fs::read_link("/proc/self/exe").map_err(|error| error.to_string())?;
        let maps = fs::read_to_string("/proc/self/maps").map_err(|error| error.to_string())?;
        let shown = path.display().to_string();
        let image = Image::parse(&maps, &shown)
            .ok_or_else(|| format!("{shown} is not in the list of mappings of its process"))?;
        let bytes = fs::read(&path).map_err(|error| format!("reading {shown}: {error}"))?;
        let loader = loader(&path)?;
        // Type 3 of an ELF file is one that may be loaded anywhere.
        let moves = bytes.get(16) == Some(&3);
        Ok(Symbols { loader, bytes, image, moves, known: HashMap::new() })
    }

    /// Whether the program has line tables of this crate. Without them no function has a source
    /// file.
    pub fn have_lines(&mut self) -> bool {
        let frames = self.frames(Symbols::of_this_program as *const () as u64);
        frames.iter().any(|frame| !frame.file.is_empty())
    }

    /// Addresses of the program's code.
    pub fn code(&self) -> Range<u64> {
        self.image.code.clone()
    }

    /// The functions at an address, innermost first. Empty outside of the program.
    pub fn frames(&mut self, at: u64) -> Arc<[Frame]> {
        if !self.image.code.contains(&at) {
            return Arc::new([]);
        }
        if let Some(frames) = self.known.get(&at) {
            return frames.clone();
        }
        let probe = if self.moves { at - self.image.base } else { at };
        let frames = self.look_up(probe);
        self.known.insert(at, frames.clone());
        frames
    }

    fn look_up(&self, probe: u64) -> Arc<[Frame]> {
        let mut found = Vec::new();
        if let Ok(frames) = self.loader.find_frames(probe) {
            let frame = |frame: addr2line::Frame<'_, _>| {
                let name = frame.function.as_ref().and_then(|name| name.demangle().ok());
                let function = name.map_or_else(String::new, |name| name.into_owned());
                let file = frame.location.and_then(|location| location.file);
                Ok(Frame { function, file: file.unwrap_or_default().to_owned() })
            };
            found = frames.map(frame).collect().unwrap_or_default();
        }
        if found.iter().all(|frame| frame.function.is_empty())
            && let Some(symbol) = self.loader.find_symbol(probe)
        {
            let function = addr2line::demangle_auto(symbol.into(), None).into_owned();
            found.push(Frame { function, file: String::new() });
        }
        found.into()
    }

    /// Whether a call instruction precedes an address, as it precedes every return address.
    pub fn is_after_call(&self, at: u64) -> bool {
        let Some(offset) = at.checked_sub(self.image.code.start) else { return false };
        let end = (offset + self.image.offset) as usize;
        let Some(before) = end.checked_sub(8).and_then(|start| self.bytes.get(start..end)) else {
            return false;
        };
        is_call(before)
    }
}

fn loader(path: &Path) -> Result<Loader, String> {
    Loader::new(path).map_err(|error| format!("reading symbols of {}: {error}", path.display()))
}

/// Whether the last bytes are a call: `E8` with an offset of 32 bits, or `FF /2` with any operand.
#[cfg(target_arch = "x86_64")]
fn is_call(before: &[u8]) -> bool {
    let through = |back: usize| {
        let at = before.len() - back;
        before[at] == 0xff && before[at + 1] & 0x38 == 0x10
    };
    before[before.len() - 5] == 0xe8 || [2, 3, 4, 6, 7].into_iter().any(through)
}

/// Whether the last instruction is `BL` or `BLR`.
#[cfg(target_arch = "aarch64")]
fn is_call(before: &[u8]) -> bool {
    let word = u32::from_le_bytes(before[before.len() - 4..].try_into().expect("four bytes"));
    word >> 26 == 0b100101 || word & 0xffff_fc1f == 0xd63f_0000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_of_the_program_are_found() {
        let maps = "55d0c0000000-55d0c0100000 r--p 00000000 08:01 77   /bin/wattle\n\
                    55d0c0100000-55d0c0300000 r-xp 00100000 08:01 77   /bin/wattle\n\
                    7f0000000000-7f0000200000 r-xp 00000000 08:01 78   /lib/libc.so.6\n";
        let image = Image::parse(maps, "/bin/wattle").unwrap();
        assert_eq!(image.code, 0x55d0_c010_0000..0x55d0_c030_0000);
        assert_eq!((image.offset, image.base), (0x10_0000, 0x55d0_c000_0000));
        assert!(Image::parse(maps, "/bin/other").is_none());
    }

    #[test]
    fn calls_are_recognised() {
        #[cfg(target_arch = "x86_64")]
        {
            assert!(is_call(&[0, 0, 0, 0xe8, 1, 2, 3, 4]));
            assert!(is_call(&[0, 0, 0, 0, 0, 0, 0xff, 0xd0]));
            assert!(is_call(&[0, 0, 0xff, 0x15, 1, 2, 3, 4]));
            assert!(!is_call(&[0, 0, 0, 0xe9, 1, 2, 3, 4]));
            assert!(!is_call(&[0x90; 8]));
        }
    }

    #[test]
    fn a_function_of_this_program_has_its_name() {
        let mut symbols = Symbols::of_this_program().unwrap();
        let at = a_function_of_this_program_has_its_name as *const () as u64;
        assert!(symbols.code().contains(&at));
        let frames = symbols.frames(at);
        let named = |frame: &Frame| frame.function.contains("a_function_of_this_program");
        assert!(frames.iter().any(named), "{frames:?}");
        assert!(symbols.frames(1).is_empty());
    }
}
