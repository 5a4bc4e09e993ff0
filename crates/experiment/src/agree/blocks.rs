//! Which page blocks boot left to the kernel's own allocations, and what of them is free: from 5.0 on it decides when page cache raises
//! the watermarks, from 6.10 on also whether a full node's next page is another node's. /proc/pagetypeinfo counts the free pieces of each kind in
//! a zone, /proc/kpageflags shows those of each block: together they say of which kind a block is.

use flatwater_recording::schema::zones;
use flatwater_recording::{NodeShape, PartialBlock, Recording, ZoneBlocks};
use flatwater_workload::scenario::{BlockExtent, BlockKind, KernelBlock};

/// What is tried before the free pieces count as of several blocks together. Blocks differ so much in their pieces that a guest's dozen take a
/// few dozen steps.
const STEPS_MAX: u32 = 20_000;
/// A recording may say anything; a guest of 512 MiB has 256 blocks, and pieces of nine orders.
const BLOCKS_MAX: usize = 512;
const ORDERS_MAX: usize = 16;
/// A page block is a piece of this order (pageblock_order, x86-64).
const BLOCK_ORDER: usize = 9;
/// What there may be of whole blocks for a node of 64 GiB.
const WHOLE_MAX: u64 = 1 << 15;

/// The assignment that tells the model; none where nobody read them.
pub fn kernel_blocks(reference: &Recording) -> Option<String> {
    let header = &reference.header;
    let of_node = |node: &NodeShape| {
        // The DMA zone's are the model's own.
        let own = header.zone_blocks.iter().filter(|zone| zone.node == node.node && zone.zone != zones::DMA);
        let blocks: Vec<String> = own.flat_map(of_zone).map(|block| block.to_string()).collect();
        blocks.join(",")
    };
    let told: Vec<String> = header.machine.nodes.iter().map(of_node).collect();
    (!header.zone_blocks.is_empty()).then(|| format!("machine.kernel_blocks={}", told.join(";")))
}

fn of_zone(zone: &ZoneBlocks) -> Vec<KernelBlock> {
    if zone.reclaimable.len().max(zone.unmovable.len()) > ORDERS_MAX {
        return together(zone);
    }
    let below = |pieces: &[u64]| pieces.iter().take(BLOCK_ORDER).copied().collect::<Vec<u64>>();
    let (reclaimable, unmovable) = (below(&zone.reclaimable), below(&zone.unmovable));
    let parts = ZoneBlocks { reclaimable, unmovable, ..zone.clone() };
    let mut blocks = one_by_one(&parts).unwrap_or_else(|| together(&parts));
    blocks.extend(wholly_free(BlockKind::Reclaimable, &zone.reclaimable));
    blocks.extend(wholly_free(BlockKind::Unmovable, &zone.unmovable));
    blocks
}

/// Blocks that are free and keep their kind.
fn wholly_free(kind: BlockKind, pieces: &[u64]) -> Vec<KernelBlock> {
    let larger = pieces.iter().enumerate().skip(BLOCK_ORDER);
    let blocks = larger.map(|(order, pieces)| pieces.saturating_mul(1 << (order - BLOCK_ORDER)));
    let count = blocks.fold(0_u64, u64::saturating_add).min(WHOLE_MAX);
    let mut pieces = vec![0; BLOCK_ORDER];
    pieces.push(1);
    let block = KernelBlock { kind, pieces, listed_pages: 0, extent: BlockExtent::Whole };
    vec![block; count as usize]
}

/// All free pieces of a kind as if they were of one block: it is not known which are.
fn together(zone: &ZoneBlocks) -> Vec<KernelBlock> {
    let of = |kind, pieces: &Vec<u64>| KernelBlock {
        kind,
        pieces: pieces.clone(),
        listed_pages: 0,
        extent: BlockExtent::Several,
    };
    let both = [of(BlockKind::Reclaimable, &zone.reclaimable), of(BlockKind::Unmovable, &zone.unmovable)];
    both.into_iter().filter(|block| block.pieces.iter().any(|pieces| *pieces > 0)).collect()
}

/// Each block with its kind: such that the pieces of each kind's blocks are together what the zone has of that kind.
fn one_by_one(zone: &ZoneBlocks) -> Option<Vec<KernelBlock>> {
    let mut lists = zone.partial.iter().map(|block| &block.free).chain([&zone.reclaimable, &zone.unmovable]);
    if zone.partial.is_empty() || zone.partial.len() > BLOCKS_MAX || lists.any(|list| list.len() > ORDERS_MAX) {
        return None;
    }
    let mut search = Search {
        blocks: &zone.partial,
        left: [zone.reclaimable.clone(), zone.unmovable.clone()],
        kinds: vec![None; zone.partial.len()],
        steps: 0,
    };
    search.solve(0).then(|| {
        let known = zone.partial.iter().zip(&search.kinds);
        known.filter_map(|(block, kind)| Some(kernel_block(block, (*kind)?))).collect()
    })
}

fn kernel_block(block: &PartialBlock, kind: BlockKind) -> KernelBlock {
    KernelBlock {
        kind,
        pieces: block.free.clone(),
        listed_pages: block.listed_pages,
        extent: if block.whole { BlockExtent::Whole } else { BlockExtent::Part },
    }
}

struct Search<'a> {
    blocks: &'a [PartialBlock],
    /// Pieces by order that no block has been found for yet: reclaimable, unmovable.
    left: [Vec<u64>; 2],
    /// The kernel's; none is page cache's.
    kinds: Vec<Option<BlockKind>>,
    steps: u32,
}

impl Search<'_> {
    fn solve(&mut self, place: usize) -> bool {
        self.steps += 1;
        let Some(block) = self.blocks.get(place) else {
            return self.left.iter().flatten().all(|pieces| *pieces == 0);
        };
        if self.steps > STEPS_MAX || !self.is_enough_from(place) {
            return false;
        }
        for kind in [BlockKind::Reclaimable, BlockKind::Unmovable] {
            let left = &mut self.left[usize::from(kind == BlockKind::Unmovable)];
            let Some(less) = without(left, &block.free) else { continue };
            let before = std::mem::replace(left, less);
            self.kinds[place] = Some(kind);
            if self.solve(place + 1) {
                return true;
            }
            self.left[usize::from(kind == BlockKind::Unmovable)] = before;
        }
        self.kinds[place] = None;
        self.solve(place + 1)
    }

    /// Whether the blocks from here on have what is left, order by order.
    fn is_enough_from(&self, place: usize) -> bool {
        let orders = self.left.iter().map(Vec::len).max().unwrap_or(0);
        let at = |pieces: &Vec<u64>, order: usize| pieces.get(order).copied().unwrap_or(0);
        (0..orders).all(|order| {
            let there = self.blocks[place..].iter().map(|block| at(&block.free, order)).fold(0, u64::saturating_add);
            there >= self.left.iter().map(|left| at(left, order)).fold(0, u64::saturating_add)
        })
    }
}

/// What stays of these pieces without those, if all of those are among them.
fn without(pieces: &[u64], taken: &[u64]) -> Option<Vec<u64>> {
    let more = taken.get(pieces.len()..).unwrap_or(&[]);
    let less = pieces.iter().enumerate().map(|(order, own)| own.checked_sub(taken.get(order).copied().unwrap_or(0)));
    more.iter().all(|pieces| *pieces == 0).then(|| less.collect())?
}

#[cfg(test)]
mod tests {
    use super::{BLOCK_ORDER, kernel_blocks};
    use flatwater_explain::testing::Made;
    use flatwater_recording::schema::zones;
    use flatwater_recording::{NodeShape, PartialBlock, Recording, ZoneBlocks};

    fn with(zone_blocks: Vec<ZoneBlocks>) -> Recording {
        let node = |node| NodeShape { node, ..NodeShape::default() };
        Made::new()
            .edit(|recording| {
                recording.header.machine.nodes = vec![node(0), node(1)];
                recording.header.zone_blocks = zone_blocks;
            })
            .done()
    }

    fn zone(node: u32, zone: &str, reclaimable: &[u64], unmovable: &[u64], partial: &[(&[u64], bool)]) -> ZoneBlocks {
        let partial =
            partial.iter().map(|(free, whole)| PartialBlock { free: free.to_vec(), listed_pages: 7, whole: *whole });
        ZoneBlocks {
            node,
            zone: zone.to_owned(),
            reclaimable: reclaimable.to_vec(),
            unmovable: unmovable.to_vec(),
            partial: partial.collect(),
        }
    }

    #[test]
    fn pieces_of_which_no_block_is_known_count_together() {
        assert_eq!(kernel_blocks(&with(Vec::new())), None, "where they were not read");
        let told = kernel_blocks(&with(vec![
            zone(0, zones::DMA, &[], &[0, 0, 9], &[]),
            zone(0, "DMA32", &[1, 0, 2], &[0, 0], &[]),
            zone(1, "DMA32", &[], &[0, 3], &[]),
        ]));
        let expected = "machine.kernel_blocks=reclaimable/1.0.2/0/several;unmovable/0.3/0/several";
        assert_eq!(told.as_deref(), Some(expected));
    }

    /// Node 1 of a guest of 6.1: four blocks, the last of which ends with the zone.
    #[test]
    fn a_block_is_of_the_kind_whose_pieces_it_completes() {
        let blocks: [(&[u64], bool); 4] = [
            (&[1, 0, 0, 1, 0, 1, 0, 0, 1], true),
            (&[0, 1, 0, 1, 0, 1, 1, 0, 1], true),
            (&[1, 0, 1, 0, 0, 0, 0, 1, 0], true),
            (&[0, 0, 0, 0, 0, 0, 0, 0, 1], false),
        ];
        let (slabs, others) = ([1, 0, 0, 1, 0, 1, 0, 0, 1], [1, 0, 1, 0, 0, 0, 0, 1, 1]);
        let told = kernel_blocks(&with(vec![zone(1, "DMA32", &slabs, &others, &blocks)]));
        let expected = "machine.kernel_blocks=;reclaimable/1.0.0.1.0.1.0.0.1/7/whole,unmovable/1.0.1.0.0.0.0.1.0/7/whole,\
            unmovable/0.0.0.0.0.0.0.0.1/7/part";
        assert_eq!(told.as_deref(), Some(expected));
        // Readings of two instants: no choice of blocks has these pieces.
        let others = [2, 0, 1, 0, 0, 0, 0, 1, 1];
        let told = kernel_blocks(&with(vec![zone(1, "DMA32", &slabs, &others, &blocks)]));
        assert!(told.is_some_and(|told| told.ends_with("unmovable/2.0.1.0.0.0.0.1.1/0/several")));
    }

    #[test]
    fn what_no_guest_has_is_told_as_it_stands_and_refused_by_who_is_told() {
        use flatwater_workload::scenario::Scenario;
        let refuses = |zone| {
            let told = kernel_blocks(&with(vec![zone])).expect("zones");
            Scenario::load("journal").expect("built in").set(&told).is_err()
        };
        let most = [u64::MAX, u64::MAX];
        assert!(refuses(zone(0, "DMA32", &most, &most, &[(&most, true), (&most, true)])));
        let many = vec![(&[1_u64][..], true); 100_000];
        assert!(!refuses(zone(0, "DMA32", &[1], &[1], &many)), "counted together");
        assert!(refuses(zone(0, "DMA32", &vec![1; 100_000], &[1], &[])));
    }

    #[test]
    fn a_free_block_that_is_still_the_kernels_is_told() {
        let mut slabs = vec![0, 1];
        slabs.resize(BLOCK_ORDER, 0);
        slabs.extend([1, 2]);
        let told = kernel_blocks(&with(vec![zone(0, "DMA32", &slabs, &[], &[(&[0, 1], true)])]));
        let whole = "reclaimable/0.0.0.0.0.0.0.0.0.1/0/whole";
        // One of a block's size, and two of two blocks'.
        let expected = format!("machine.kernel_blocks=reclaimable/0.1/7/whole,{};", [whole; 5].join(","));
        assert_eq!(told, Some(expected));
    }

    /// A hundred equal blocks and a sum that none of their choices has: it is given up, not tried for ever.
    #[test]
    fn a_search_without_end_is_given_up() {
        let blocks = vec![(&[1_u64, 1][..], true); 100];
        let told = kernel_blocks(&with(vec![zone(0, "DMA32", &[50, 49], &[40, 40], &blocks)]));
        assert!(told.is_some_and(|told| told.contains("several")));
    }
}
