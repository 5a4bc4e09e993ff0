//! Reads the types of a BPF object from its BTF (Documentation/bpf/btf.rst), as far as the tests need them to compare
//! the mirror in `layout` with the compiled object.

use object::{Object, ObjectSection};

use super::layout;

#[derive(Debug)]
pub struct Member {
    pub name: String,
    /// In bytes.
    pub offset: usize,
    pub size: usize,
}

#[derive(Debug)]
pub struct Structure {
    pub size: usize,
    pub members: Vec<Member>,
}

/// One type as stored in the section; `u32` fields are ids of other types.
#[derive(Debug)]
enum Kind {
    /// Integers, floats.
    Sized(usize),
    Pointer,
    Array {
        of: u32,
        count: usize,
    },
    Structure {
        size: usize,
        members: Vec<(String, u32, usize)>,
    },
    Enumeration {
        size: usize,
        values: Vec<(String, i64)>,
    },
    /// typedef, const, volatile.
    Alias(u32),
    Other,
}

/// The types in the order of their ids, which start at 1.
#[derive(Debug)]
pub struct Types(Vec<(String, Kind)>);

/// Reads consecutive little-endian words.
struct Words<'a>(&'a [u8]);

impl Words<'_> {
    fn next(&mut self) -> Option<u32> {
        let (word, rest) = self.0.split_first_chunk::<4>()?;
        self.0 = rest;
        Some(u32::from_le_bytes(*word))
    }
}

impl Types {
    /// `None` if the object has no BTF or truncated BTF.
    #[must_use]
    pub fn of_object(object: &[u8]) -> Option<Types> {
        let file = object::File::parse(object).ok()?;
        let data = file.section_by_name(".BTF")?.data().ok()?;
        // struct btf_header: magic, version and flags, then five words.
        let mut header = Words(data.get(4..24)?);
        let mut word = || header.next().map(|word| word as usize);
        let (length, types_at, types_bytes, texts_at, texts_bytes) = (word()?, word()?, word()?, word()?, word()?);
        let body = data.get(length..)?;
        let texts = body.get(texts_at..texts_at + texts_bytes)?;
        let mut words = Words(body.get(types_at..types_at + types_bytes)?);
        let mut types = Vec::new();
        while let Some(name) = words.next() {
            let (info, size_or_type) = (words.next()?, words.next()?);
            types.push((text(texts, name)?, kind(info, size_or_type, &mut words, texts)?));
        }
        Some(Types(types))
    }

    fn find(&self, name: &str, wanted: impl Fn(&Kind) -> bool) -> Option<&Kind> {
        self.0.iter().find(|(known, kind)| known == name && wanted(kind)).map(|(_, kind)| kind)
    }

    #[must_use]
    pub fn structure(&self, name: &str) -> Option<Structure> {
        let Kind::Structure { size, members } = self.find(name, |kind| matches!(kind, Kind::Structure { .. }))? else {
            return None;
        };
        let member = |(name, of, bits): &(String, u32, usize)| {
            Some(Member { name: name.clone(), offset: bits / 8, size: self.size_of(*of)? })
        };
        Some(Structure { size: *size, members: members.iter().map(member).collect::<Option<_>>()? })
    }

    /// Names and values of an enum, in the order of the source.
    #[must_use]
    pub fn enumeration(&self, name: &str) -> Option<Vec<(String, i64)>> {
        match self.find(name, |kind| matches!(kind, Kind::Enumeration { .. }))? {
            Kind::Enumeration { values, .. } => Some(values.clone()),
            _ => None,
        }
    }

    /// Checks that the mirror of a structure has the size and members of the object's.
    pub fn assert_struct(&self, name: &str, size: usize, members: &[layout::Member]) {
        let original = self.structure(name).unwrap_or_else(|| panic!("the object has no struct {name}"));
        let theirs: Vec<(&str, usize, usize)> =
            original.members.iter().map(|member| (member.name.as_str(), member.offset, member.size)).collect();
        assert_eq!(theirs, members, "struct {name}");
        assert_eq!(original.size, size, "struct {name}");
    }

    /// Checks that the mirror of an enum matches the object's, whose constants have a prefix. `number_of` is the
    /// constant that counts the others; only the BPF programs use it.
    pub fn assert_enum(&self, name: &str, prefix: &str, ours: &[(&str, i64)], number_of: &str) {
        let original = self.enumeration(name).unwrap_or_else(|| panic!("the object has no enum {name}"));
        let ours: Vec<(String, i64)> =
            ours.iter().map(|(constant, value)| (format!("{prefix}{constant}"), *value)).collect();
        let original: Vec<(String, i64)> = original.into_iter().filter(|(constant, _)| constant != number_of).collect();
        assert_eq!(original, ours, "enum {name}");
    }

    fn size_of(&self, id: u32) -> Option<usize> {
        match &self.0.get(usize::try_from(id).ok()?.checked_sub(1)?)?.1 {
            Kind::Sized(size) | Kind::Structure { size, .. } | Kind::Enumeration { size, .. } => Some(*size),
            Kind::Pointer => Some(8),
            Kind::Array { of, count } => Some(self.size_of(*of)? * count),
            Kind::Alias(of) => self.size_of(*of),
            Kind::Other => None,
        }
    }
}

fn text(texts: &[u8], at: u32) -> Option<String> {
    let rest = texts.get(usize::try_from(at).ok()?..)?;
    let end = rest.iter().position(|&byte| byte == 0)?;
    Some(String::from_utf8_lossy(&rest[..end]).into_owned())
}

/// Reads the part of a type after the three common words; it depends on the kind.
fn kind(info: u32, size_or_type: u32, words: &mut Words<'_>, texts: &[u8]) -> Option<Kind> {
    let (kind, count) = (info >> 24 & 0x1f, info & 0xffff);
    let size = size_or_type as usize;
    let skip = |words: &mut Words<'_>, many: u32| (0..many).try_for_each(|_| words.next().map(|_| ()));
    Some(match kind {
        // BTF_KIND_INT
        1 => {
            skip(words, 1)?;
            Kind::Sized(size)
        }
        // BTF_KIND_PTR
        2 => Kind::Pointer,
        // BTF_KIND_ARRAY
        3 => {
            let (of, _index, count) = (words.next()?, words.next()?, words.next()?);
            Kind::Array { of, count: count as usize }
        }
        // BTF_KIND_STRUCT, BTF_KIND_UNION. The upper 8 bits of an offset are the width of a bit field; our structures
        // have none.
        4 | 5 => {
            let mut members = Vec::new();
            for _ in 0..count {
                let (name, of, bits) = (words.next()?, words.next()?, words.next()?);
                members.push((text(texts, name)?, of, (bits & 0xff_ffff) as usize));
            }
            Kind::Structure { size, members }
        }
        // BTF_KIND_ENUM
        6 => {
            let mut values = Vec::new();
            for _ in 0..count {
                let (name, value) = (words.next()?, words.next()?);
                values.push((text(texts, name)?, i64::from(value.cast_signed())));
            }
            Kind::Enumeration { size, values }
        }
        // BTF_KIND_TYPEDEF, VOLATILE, CONST, RESTRICT, TYPE_TAG
        8..=11 | 18 => Kind::Alias(size_or_type),
        // BTF_KIND_FWD, FUNC
        7 | 12 => Kind::Other,
        // BTF_KIND_FUNC_PROTO
        13 => {
            skip(words, 2 * count)?;
            Kind::Other
        }
        // BTF_KIND_VAR, DECL_TAG
        14 | 17 => {
            skip(words, 1)?;
            Kind::Other
        }
        // BTF_KIND_DATASEC, ENUM64
        15 | 19 => {
            skip(words, 3 * count)?;
            Kind::Other
        }
        // BTF_KIND_FLOAT
        16 => Kind::Sized(size),
        _ => return None,
    })
}
