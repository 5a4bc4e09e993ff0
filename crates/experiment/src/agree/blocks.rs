//! The page blocks that boot left to the kernel's own allocations, as an assignment to the model.
//!
//! How much of them is free decides from 5.0 on when page cache boosts the watermarks, and from 6.10 on also whether
//! the next page of a full node comes from another node. /proc/pagetypeinfo counts the free pieces of each kind in a
//! zone, /proc/kpageflags shows the free pieces of each block. Together they give the kind of each block.

use flatwater_recording::schema::zones;
use flatwater_recording::{NodeShape, PartialBlock, Recording, ZoneBlocks};
use flatwater_workload::scenario::{BlockExtent, BlockKind, KernelBlock};

/// Steps of the search before the free pieces count as pieces of several blocks together. Blocks differ so much in
/// their pieces that the dozen of a guest take a few dozen steps.
const STEPS_MAX: u32 = 20_000;
/// Limits against hostile recordings. A guest of 512 MiB has 256 blocks, and its pieces have nine orders.
const BLOCKS_MAX: usize = 512;
const ORDERS_MAX: usize = 16;
/// pageblock_order on x86-64: a free piece of this order is a whole page block.
const BLOCK_ORDER: usize = 9;
/// Page blocks of 2 MiB in a node of 64 GiB.
const WHOLE_MAX: u64 = 1 << 15;

/// The assignment of `machine.kernel_blocks`; absent if the recording has no page blocks.
pub fn kernel_blocks(reference: &Recording) -> Option<String> {
    let header = &reference.header;
    let of_node = |node: &NodeShape| {
        // The model makes the blocks of the DMA zone itself.
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

/// Blocks that are free as a whole but keep their kind.
fn wholly_free(kind: BlockKind, pieces: &[u64]) -> Vec<KernelBlock> {
    let larger = pieces.iter().enumerate().skip(BLOCK_ORDER);
    let blocks = larger.map(|(order, pieces)| pieces.saturating_mul(1 << (order - BLOCK_ORDER)));
    let count = blocks.fold(0_u64, u64::saturating_add).min(WHOLE_MAX);
    let mut pieces = vec![0; BLOCK_ORDER];
    pieces.push(1);
    let block = KernelBlock { kind, pieces, listed_pages: 0, extent: BlockExtent::Whole };
    vec![block; count as usize]
}

/// All free pieces of a kind as those of several blocks, since the blocks they lie in are not known.
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

/// Each block with its kind, such that the pieces of the blocks of a kind sum to what the zone has of that kind.
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
    /// Pieces by order that no block accounts for yet: reclaimable, unmovable.
    left: [Vec<u64>; 2],
    /// Kind of each block; absent for blocks of page cache (movable).
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

    /// Whether the blocks from `place` on have at least as many pieces of each order as are left.
    fn is_enough_from(&self, place: usize) -> bool {
        let orders = self.left.iter().map(Vec::len).max().unwrap_or(0);
        let at = |pieces: &Vec<u64>, order: usize| pieces.get(order).copied().unwrap_or(0);
        (0..orders).all(|order| {
            let there = self.blocks[place..].iter().map(|block| at(&block.free, order)).fold(0, u64::saturating_add);
            there >= self.left.iter().map(|left| at(left, order)).fold(0, u64::saturating_add)
        })
    }
}

/// `pieces` less `taken`, order by order; `None` if `taken` has more of some order.
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
    fn pieces_of_unknown_blocks_are_counted_together() {
        assert_eq!(kernel_blocks(&with(Vec::new())), None, "where they were not read");
        let told = kernel_blocks(&with(vec![
            zone(0, zones::DMA, &[], &[0, 0, 9], &[]),
            zone(0, "DMA32", &[1, 0, 2], &[0, 0], &[]),
            zone(1, "DMA32", &[], &[0, 3], &[]),
        ]));
        let expected = "machine.kernel_blocks=reclaimable/1.0.2/0/several;unmovable/0.3/0/several";
        assert_eq!(told.as_deref(), Some(expected));
    }

    /// Node 1 of a guest with 6.1: four blocks, the last of which ends with the zone.
    #[test]
    fn the_kinds_of_blocks_make_their_pieces_sum_to_those_of_the_zone() {
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
        // The two files were read at different instants: no assignment of kinds gives these pieces.
        let others = [2, 0, 1, 0, 0, 0, 0, 1, 1];
        let told = kernel_blocks(&with(vec![zone(1, "DMA32", &slabs, &others, &blocks)]));
        assert!(told.is_some_and(|told| told.ends_with("unmovable/2.0.1.0.0.0.0.1.1/0/several")));
    }

    #[test]
    fn impossible_blocks_are_passed_on_and_the_scenario_refuses_them() {
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
    fn a_free_block_keeps_its_kind() {
        let mut slabs = vec![0, 1];
        slabs.resize(BLOCK_ORDER, 0);
        slabs.extend([1, 2]);
        let told = kernel_blocks(&with(vec![zone(0, "DMA32", &slabs, &[], &[(&[0, 1], true)])]));
        let whole = "reclaimable/0.0.0.0.0.0.0.0.0.1/0/whole";
        // One piece of a block's size and two pieces of two blocks' size.
        let expected = format!("machine.kernel_blocks=reclaimable/0.1/7/whole,{};", [whole; 5].join(","));
        assert_eq!(told, Some(expected));
    }

    /// A hundred equal blocks, and sums that no assignment of kinds gives: the search stops after `STEPS_MAX`.
    #[test]
    fn a_long_search_stops_at_its_limit() {
        let blocks = vec![(&[1_u64, 1][..], true); 100];
        let told = kernel_blocks(&with(vec![zone(0, "DMA32", &[50, 49], &[40, 40], &blocks)]));
        assert!(told.is_some_and(|told| told.contains("several")));
    }
}
