"""What the tests of k8s/ share."""

import pytest
from tests.unit.deploy.manifests import FOLDERS, K8S, Document, build


@pytest.fixture(params=FOLDERS)
def documents(request: pytest.FixtureRequest) -> tuple[Document, ...]:
    return build(K8S / request.param)
