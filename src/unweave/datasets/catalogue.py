"""The data sets by name: their files, the SHA-256 sums these are known by, and where PyG finds them.

Planetoid files are pickles, so an unknown sum is never read. The ``.npz`` files are read without pickle;
for them the originals and a repacked form with the same matrices are known, and any other packing is
accepted when its matrices are the known ones (``content``).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch_geometric.datasets import Amazon, CitationFull, Coauthor, Planetoid

__all__ = ["CATALOGUE", "Entry"]


@dataclass(frozen=True)
class Entry:
    """One data set.

    Attributes:
        folder: Folder under the root, as PyG's own loader lays it out.
        inner: Folder in it where files lie.
        files: File name → accepted SHA-256 sums.
        url: Address of a file, with ``{}`` for its name, as PyG has it; empty where there is none.
        prefix: Name inside the Planetoid files; empty for ``.npz`` data sets.
        content: Digest of the matrices of an ``.npz`` data set.
        whole: Whether it has many graphs, each with a label, in the text form of GIN.
    """

    folder: str
    files: Mapping[str, tuple[str, ...]] = field(repr=False)
    url: str = ""
    prefix: str = ""
    content: str = ""
    inner: str = "raw"
    whole: bool = False


def _planetoid(folder: str, sums: dict[str, str]) -> Entry:
    prefix = folder.lower()
    files = {f"ind.{prefix}.{part}": (known,) for part, known in sums.items()}
    return Entry(folder, files, Planetoid.url + "/{}", prefix=prefix)


def _npz(folder: str, name: str, sums: tuple[str, ...], url: str, content: str) -> Entry:
    return Entry(folder, {name: sums}, url, content=content)


CATALOGUE = {
    "cora": _planetoid(
        "Cora",
        {
            "x": "23cfa55d91c6f624233f5eb7b6e3f141f1bd2b2ae39608a63cf5d084bb27baab",
            "tx": "b9afbaa4a400df991f6f02ef677e1e44da55ffc04801fd02f9e673987829226a",
            "allx": "9419ba2f26f5c35243db64aba110e0f35a04851609e0dc5433450676ca6b8543",
            "y": "94465c14eb53e04ca262198dcbb2521ee8af60fb3f3d546cd6ca24a511b0e7d1",
            "ty": "41f5ac76596a1699cc33f53084a2419e92961c42bb75f36fc38e616d348532ad",
            "ally": "2b998f5cc7fedc86e7f97ca2498f47a1ffc1462c29e2d578b23bf3f62b6e7d71",
            "graph": "58f13302f39dde8852dad6fe6d15b89b077b6d7f837626bce671ef80344b383d",
            "test.index": "297ce89af2b51a6a194181c7dbe1796c6a1cf9cd9349a88383b1b1e227867875",
        },
    ),
    "citeseer": _planetoid(
        "CiteSeer",
        {
            "x": "d20de19150741e555de0ed037195630fc194114ebc7fd72ced62810148aa22f6",
            "tx": "539a8906a2da97628d212f2fdd668c109a8b3f0d36574b59e5d3fd5b5303da21",
            "allx": "2ac30345d95c9ec933a817ee0bdd6a5f077f8c184a20e696910192d534414668",
            "y": "8ba87e515d8e3ee3cf52f6d2c5b86aa73f11ecad825a808455209ec26cd54924",
            "ty": "55e5bd1ba1e733a04598753ad1a8d57957f4b8f89e74519f41f4f4938767e4ce",
            "ally": "f704b2d986dde6c2669934de1f3ae5696a6cf9455c0f6b2646a2d135ea0a1c95",
            "graph": "d79a4ef9d3e7169aee8946145f6b7306e35bc79bffad26346cfb94e10e9912a7",
            "test.index": "2af990671580b6b2df5d158d1038f8292e30c9cd821b5453f399659b25b723d4",
        },
    ),
    "pubmed": _planetoid(
        "PubMed",
        {
            "x": "fbe9cb5c47200d1b7769a26e579be3b7130b556831f9d850e77c4c74f2599b33",
            "tx": "4eb5f5d0f30f26497eb0ac6ac9719d09c67e284f1ed0385c93f3ef27a671da3d",
            "allx": "508e538e2abdccdd54c4d3e9f49d638b4af7107d85845f66ddea5a5152658b7e",
            "y": "e6c807633307a07ed659249006536a147c7999c797f11a2560752990181b41b3",
            "ty": "ee2e0d4819d9fbcc403689c3bf2e49face401b605932f093bc58ab6461130fdd",
            "ally": "0c37bbe3b5014ec365e9d393cf4791925e5ed94fb194305d74f064a8d7b50f0e",
            "graph": "5b89f0036ca22909471f1e6558eb42fa06e0c730a577bde5b058b40638f81dc9",
            "test.index": "b101d421688bbaecbd82e8a18f1e282378d6830f3a37666f28ebc47f844341b5",
        },
    ),
    "cs": _npz(
        "CS",
        "ms_academic_cs.npz",
        (
            "933c745734e78908c7eb77172a673fee0503f30e26e5a99b36814d88534c42e3",
            "7bbda0ec297bb44efc712cc59f9e9a6c9ac959e5c4848e311bc7e011b0be5753",
        ),
        Coauthor.url + "{}",
        "29bc102e81c06113c264b611ef1f07f5adba30d7554281ad47cc4fe061e5d1a7",
    ),
    "physics": _npz(
        "Physics",
        "ms_academic_phy.npz",
        (
            "e4d68468eba5fb8f6b280ffd406bd53e6e4295ba1dd2967d6fe99b978e4b3375",
            "16df58ffe9c5d6e73220f42cc5a9f7056d2f7d076d779d9d73f1d2470f9e6592",
        ),
        Coauthor.url + "{}",
        "10df6136a88b49016179ea790331dedb3725803a0ff048db8555a20526ed7ab0",
    ),
    "photo": _npz(
        "Photo",
        "amazon_electronics_photo.npz",
        (
            "bdb1feb8e6ff42ee44024b04479145029c563fd42fc31bff80af20887ba0439a",
            "bfd3ee29622e8394c100621ee00537d738b606ecd06d513c7ceb1cd9dc7f1ef0",
        ),
        Amazon.url + "{}",
        "79e3a1b7bfd37563a2c74580f1e1a95596f2a418ac387629166c245d2bbd5b43",
    ),
    "computers": _npz(
        "Computers",
        "amazon_electronics_computers.npz",
        (
            "736ba1d9fd85eac2da83a5ad25c463f04b0031a6ca01563f90a7099d9e8ffb2c",
            "c6884ab186f0164a28c4eff3b0d475d34e130943508e959a37ca8287fab27a4d",
        ),
        Amazon.url + "{}",
        "3f9f92311586d975958a68e7839b5131925f9470145a9c438444f0e92c61eb20",
    ),
    "dblp": _npz(
        "dblp",
        "dblp.npz",
        ("750874dc86d975a01801a8512488cbe6a4b26ac29c2886f59803ac2ec21157ca",),
        CitationFull.url.removesuffix("{}.npz") + "{}",
        "c65012e8fd4cae0cf9bc02a766aab1a2b69082df853b83595f5f4b8bc8b9cbc0",
    ),
    "wordnet": _npz(
        "WordNet",
        "wordnet.npz",
        ("9edaf22e21c263b29c0e2276d2778bc02c3c936522696b52a12599df283e1fe7",),
        "",
        "a6a3cb11f88a1e75335061a05ed1548422ed984aec21c3916c836e96cf8d749e",
    ),
    "mutag": Entry(
        "TU",
        {"MUTAG.txt": ("05395684e2167e0fb31fc57534b5847cdf867ee5348d58497b33b46178c0294d",)},
        inner="",
        whole=True,
    ),
    "proteins": Entry(
        "TU",
        {"PROTEINS.txt": ("ed0730f9bf9da68aa6a8c80f2f2b6ecea5d05791ca254c709f3efab3b45d937b",)},
        inner="",
        whole=True,
    ),
}
