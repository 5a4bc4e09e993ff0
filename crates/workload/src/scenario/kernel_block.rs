//! Page blocks that the kernel's own allocations have claimed. Their text form is `unmovable/1.0.2.1/20/whole`, with
//! `,` between the blocks of a node and `;` between nodes.

use std::fmt;
use std::str::FromStr;

/// A free or partly free block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelBlock {
    pub kind: BlockKind,
    /// Free pieces, by order: the number of pieces of 1, 2, 4 ... pages.
    pub pieces: Vec<u64>,
    /// Pages of the block on an LRU list (page cache or anonymous memory).
    pub listed_pages: u64,
    pub extent: BlockExtent,
}

/// The migrate type of the block's free pages (enum migratetype).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockKind {
    Unmovable,
    Reclaimable,
}

/// The unit that one entry describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockExtent {
    /// A block that lies completely in its zone.
    Whole,
    /// A block at the beginning or end of the zone; another part of it belongs to another zone or to none.
    Part,
    /// Free pages of several blocks together.
    Several,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{given}' is not a block: expected KIND/PIECES/LISTED/EXTENT, such as unmovable/1.0.2.1/20/whole: kind (unmovable, reclaimable), free pieces of 1, 2, 4 ... pages separated by dots (1 to {PAGES_MAX} pages in total), pages on lists, extent (whole, part, several); separate blocks with ',' and nodes with ';'"
)]
pub struct KernelBlockError {
    given: String,
}

/// Maximum free pages of an entry: 1 GiB, the blocks of a whole node counted together. A piece has at most 4 MiB.
const PAGES_MAX: u64 = 1 << 18;
const ORDERS: usize = 11;

impl BlockKind {
    const ALL: [BlockKind; 2] = [BlockKind::Unmovable, BlockKind::Reclaimable];

    fn name(self) -> &'static str {
        match self {
            BlockKind::Unmovable => "unmovable",
            BlockKind::Reclaimable => "reclaimable",
        }
    }
}

impl BlockExtent {
    const ALL: [BlockExtent; 3] = [BlockExtent::Whole, BlockExtent::Part, BlockExtent::Several];

    fn name(self) -> &'static str {
        match self {
            BlockExtent::Whole => "whole",
            BlockExtent::Part => "part",
            BlockExtent::Several => "several",
        }
    }
}

impl fmt::Display for KernelBlock {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pieces: Vec<String> = self.pieces.iter().map(u64::to_string).collect();
        write!(out, "{}/{}/{}/{}", self.kind.name(), pieces.join("."), self.listed_pages, self.extent.name())
    }
}

impl FromStr for KernelBlock {
    type Err = KernelBlockError;

    fn from_str(given: &str) -> Result<KernelBlock, KernelBlockError> {
        read(given).ok_or_else(|| KernelBlockError { given: given.to_owned() })
    }
}

fn read(given: &str) -> Option<KernelBlock> {
    let mut parts = given.trim().split('/');
    let mut part = || parts.next();
    let kind = part()?;
    let pieces: Vec<u64> = part()?.split('.').map(|pieces| pieces.parse().ok()).collect::<Option<_>>()?;
    let listed_pages = part()?.parse().ok().filter(|pages| *pages <= PAGES_MAX)?;
    let extent = part()?;
    let of_order = |(pieces, order): (&u64, u32)| pieces.checked_mul(1 << order);
    let mut free = (pieces.len() <= ORDERS).then(|| pieces.iter().zip(0..).map(of_order))?;
    let free = free.try_fold(0_u64, |free, pieces| free.checked_add(pieces?))?;
    if !(1..=PAGES_MAX).contains(&free) || part().is_some() {
        return None;
    }
    Some(KernelBlock {
        kind: BlockKind::ALL.into_iter().find(|known| known.name() == kind)?,
        pieces,
        listed_pages,
        extent: BlockExtent::ALL.into_iter().find(|known| known.name() == extent)?,
    })
}

/// The blocks of each node; the text of a node without blocks is empty.
pub(super) fn of_nodes(list: &str) -> Result<Vec<Vec<KernelBlock>>, KernelBlockError> {
    let of_node = |node: &str| node.split(',').filter(|block| !block.trim().is_empty()).map(str::parse).collect();
    list.split(';').map(of_node).collect()
}

#[cfg(test)]
mod tests {
    use super::{BlockExtent, BlockKind, KernelBlock, of_nodes};

    #[test]
    fn blocks_round_trip_through_their_text() {
        let list = "unmovable/1.0.2.1/20/whole,reclaimable/0.0.0.0.0.0.0.0.1/0/part;;unmovable/3/0/several";
        let nodes = of_nodes(list).expect("blocks");
        let written: Vec<String> =
            nodes.iter().map(|node| node.iter().map(KernelBlock::to_string).collect::<Vec<_>>().join(",")).collect();
        assert_eq!(written.join(";"), list);
        assert_eq!(
            nodes[0][0],
            KernelBlock {
                kind: BlockKind::Unmovable,
                pieces: vec![1, 0, 2, 1],
                listed_pages: 20,
                extent: BlockExtent::Whole,
            }
        );
        assert!(nodes[1].is_empty());
    }

    #[test]
    fn invalid_blocks_are_refused_with_an_example() {
        for bad in [
            "unmovable",
            "movable/1/0/whole",
            "unmovable/0.0/0/whole",
            "unmovable/1.x/0/whole",
            "unmovable/1/0/all",
            "unmovable/1/0/whole/more",
            "unmovable/0.0.0.0.0.0.0.0.0.0.0.1/0/whole",
            "unmovable/18446744073709551615.1/0/whole",
            "unmovable/1.9223372036854775808/0/whole",
            "unmovable/262145/0/several",
            "unmovable/1/262145/whole",
            "unmovable/-1/0/whole",
        ] {
            let error = of_nodes(&format!("unmovable/1/0/whole;{bad}")).expect_err(bad);
            assert!(
                error.to_string().contains(bad) && error.to_string().contains("unmovable/1.0.2.1/20/whole"),
                "{error}"
            );
        }
    }
}
