import pytest
from tests.gateway.test_collection_policies import *
from tests.gateway.test_collection_policies import office, whatever_happens, run
del test_every_picture_is_a_fresh_evaluation_through_the_policies
@pytest.mark.parametrize("seed", [*range(200,225), 207, 207, 207])
def test_seeds(office, seed): run(whatever_happens, office, seed)
