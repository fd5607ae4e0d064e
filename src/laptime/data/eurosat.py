"""The official archives of EuroSAT: JPEG of three channels, or GeoTIFF of 13 bands where bands are asked for."""

from __future__ import annotations

import os
from dataclasses import dataclass

from laptime.data.archive import check_published, inner_folder, unpack
from laptime.data.disk import partial_folder, room_for
from laptime.data.ingest import ingest
from laptime.data.listing import arrange, scan
from laptime.data.net import download, shown
from laptime.data.sources import Job, Meter
from laptime.data.store import Entry

URL_VARIABLE = "LAPTIME_EUROSAT_URL"


@dataclass(frozen=True)
class Archive:
    """A zip of class folders.

    Attributes:
        algorithm, checksum: as whoever published it gives them.
        size: bytes; 0 where only the checksum is known.
        limit: bytes that it may have packed, and unpacked.
    """

    url: str
    algorithm: str
    checksum: str
    size: int
    limit: int


# Address and MD5 are those in torchvision's datasets/eurosat.py; a test compares them with the installed one.
RGB = Archive(
    "https://huggingface.co/datasets/torchgeo/eurosat/resolve/c877bcd43f099cd0196738f714544e355477f3fd/EuroSAT.zip",
    "md5",
    "c8fa014336c82ac7804f0398fcb19387",
    0,
    2**29,
)
# TorchGeo's copy of the 13 bands: SHA-256 and size from the pointer file of the commit that is named in the address.
ALL_BANDS = Archive(
    "https://huggingface.co/datasets/torchgeo/eurosat/resolve/8c86b35fe887a9db132f7d63ee359bc8e6fe78ea/EuroSATallBands.zip",
    "sha256",
    "751f070f9bffa2eed48b24ca2dd0b02959280c08837e8c9a5532a67ba611df59",
    2_067_725_275,
    2**33,
)


class OfficialEurosat:
    """The official archive; LAPTIME_EUROSAT_URL names another place of the same file."""

    def __init__(self, given: Archive | None = None) -> None:
        self.given = given

    def stored(self, job: Job) -> Entry | None:
        """See Source."""
        return job.store.recall(self._key(job))

    def fetch(self, job: Job) -> Entry:
        """See Source; what is stored was verified once and is not asked for again."""
        before = self.stored(job)
        if before is not None:
            return before
        archive = self._archive(job)
        url = os.environ.get(URL_VARIABLE) or archive.url
        job.budget.probe(url)
        with partial_folder(job.store.root) as folder:
            file = folder / "archive.zip"
            with room_for(job.store.root, archive.size or archive.limit):
                download(url, file, archive.size or archive.limit, Meter(job.say, "downloading", archive.size))
            check_published(file, archive.algorithm, archive.checksum, shown(url))
            job.say("unpacking", 0, 0)
            unpack(file, folder / "unpacked", archive.limit)
            listing = arrange(scan(inner_folder(folder / "unpacked")), job.seed)
            entry = ingest(listing, job, "official", "official")
        return job.store.remember(self._key(job), entry)

    def _archive(self, job: Job) -> Archive:
        return self.given or (ALL_BANDS if job.bands else RGB)

    def _key(self, job: Job) -> str:
        return f"official/{job.workload.name}|{self._archive(job).checksum}{job.chosen}"
