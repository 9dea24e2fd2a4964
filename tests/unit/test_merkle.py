"""The Merkle range against the vectors of Certificate Transparency and a naive tree."""

from hashlib import sha256

import pytest

from belog.schemas.merkle import EMPTY_ROOT, MerkleRange, leaf_hash

# The leaves and roots that the reference implementation of RFC 6962 tests itself with.
LEAVES = [
    bytes.fromhex(text)
    for text in (
        "",
        "00",
        "10",
        "2021",
        "3031",
        "40414243",
        "5051525354555657",
        "606162636465666768696a6b6c6d6e6f",
    )
]
ROOTS = [
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]


def naive_root(leaves: list[bytes]) -> bytes:
    """RFC 6962 §2.1, word for word: split at the largest power of two below the size."""
    if not leaves:
        return sha256(b"").digest()
    if len(leaves) == 1:
        return sha256(b"\x00" + leaves[0]).digest()
    split = 1
    while split * 2 < len(leaves):
        split *= 2
    left, right = naive_root(leaves[:split]), naive_root(leaves[split:])
    return sha256(b"\x01" + left + right).digest()


@pytest.mark.parametrize("size", range(1, 9))
def test_published_vectors(size: int) -> None:
    tree = MerkleRange()
    for leaf in LEAVES[:size]:
        tree.add(leaf)
    assert tree.root().hex() == ROOTS[size - 1]
    assert naive_root(LEAVES[:size]).hex() == ROOTS[size - 1]


def test_empty_list() -> None:
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert MerkleRange().root().hex() == EMPTY_ROOT.hex() == empty


def test_equals_the_naive_tree_at_every_size_and_restores() -> None:
    tree = MerkleRange()
    leaves: list[bytes] = []
    for n in range(130):
        assert tree.root() == naive_root(leaves)
        assert len(tree.peaks) == tree.size.bit_count()
        leaf = n.to_bytes(2, "big") * (n % 5)
        restored = MerkleRange(tree.size, tree.peaks)
        copied = tree.copy()
        for each in (tree, restored, copied):
            each.add(leaf)
        assert tree.peaks == restored.peaks == copied.peaks
        leaves.append(leaf)


def test_a_copy_is_independent() -> None:
    tree = MerkleRange()
    tree.add(b"a")
    copied = tree.copy()
    tree.add(b"b")
    assert copied.root() == leaf_hash(b"a")


def test_peaks_must_fit_the_size() -> None:
    with pytest.raises(ValueError, match="2 peaks, not 1"):
        MerkleRange(3, [EMPTY_ROOT])


def test_leaves_at_once_are_leaves_one_by_one() -> None:
    leaves = [n.to_bytes(2, "big") for n in range(70)]
    for before in range(35):
        for count in range(35):
            tree, other = MerkleRange(), MerkleRange()
            for leaf in leaves[: before + count]:
                tree.add(leaf)
            other.extend(leaves[:before])
            other.extend(leaves[before : before + count])
            assert (other.size, other.peaks) == (tree.size, tree.peaks)
