"""Who asks, and what of the credential may leave the proxy."""

import pytest

from proxy.errors import ClientError
from proxy.settings import config as written
from proxy.settings.units import Secret
from proxy.tenancy.tenants import ANONYMOUS, Tenants


def bearer(key, scheme="Bearer"):
    return ((b"authorization", f"{scheme} {key}".encode()),)


def keyed(*, anonymous=False):
    keys = {Secret("key-acme"): "acme", Secret("key-acme-2"): "acme", Secret("key-b"): "b"}
    return Tenants(written.Tenants(keys=keys, anonymous=anonymous))


def test_without_tenants_each_credential_is_its_own_tenant():
    tenants = Tenants(None)
    one, again, other = (tenants.identify(bearer(key)).caller for key in ("k1", "k1", "k2"))
    assert one == again
    assert one.tenant != other.tenant
    assert one.credential_id != other.credential_id


def test_without_tenants_the_credential_is_passed_on_but_never_part_of_the_caller():
    identity = Tenants(None).identify(bearer("sk-secret"))
    assert identity.credential == b"Bearer sk-secret"
    assert "sk-secret" not in repr(identity)
    assert "sk-secret" not in repr(identity.caller)


def test_without_a_credential_the_tenant_is_anonymous():
    identity = Tenants(None).identify(((b"host", b"x"),))
    assert identity.caller.tenant == ANONYMOUS
    assert identity.caller.credential_id == ""
    assert identity.credential is None


@pytest.mark.parametrize("value", [b"", b"  ", b"Bearer", b"Bearer  ", b"bearer "])
def test_an_empty_credential_is_none(value):
    assert Tenants(None).identify(((b"authorization", value),)).caller.tenant == ANONYMOUS


@pytest.mark.parametrize(
    "headers",
    [
        bearer("key-acme"),
        bearer("key-acme", scheme="bearer"),
        bearer(" key-acme "),
        ((b"api-key", b"key-acme"),),
        ((b"x-api-key", b"key-acme"),),
    ],
)
def test_a_key_is_known_wherever_clients_put_it(headers):
    identity = keyed().identify(headers)
    assert identity.caller.tenant == "acme"
    assert identity.caller == keyed().identify(bearer("key-acme")).caller


def test_keys_of_one_tenant_are_different_credentials():
    one, two = (keyed().identify(bearer(key)).caller for key in ("key-acme", "key-acme-2"))
    assert one.tenant == two.tenant
    assert one.credential_id != two.credential_id


@pytest.mark.parametrize("anonymous", [False, True])
def test_with_tenants_no_credential_goes_upstream(anonymous):
    assert keyed(anonymous=anonymous).identify(bearer("key-acme")).credential is None
    if anonymous:
        assert keyed(anonymous=True).identify(bearer("mistyped")).credential is None


@pytest.mark.parametrize("headers", [bearer("key-acm"), bearer("KEY-ACME"), bearer("acme"), ()])
def test_an_unknown_key_is_refused_in_openais_shape(headers):
    with pytest.raises(ClientError) as caught:
        keyed().identify(headers)
    assert (caught.value.status, caught.value.code) == (401, "invalid_api_key")
    assert "key-acm" not in caught.value.message


def test_an_unknown_key_is_anonymous_where_that_is_allowed():
    tenants = keyed(anonymous=True)
    one, two = tenants.identify(bearer("x1")).caller, tenants.identify(bearer("x2")).caller
    assert one.tenant == two.tenant == ANONYMOUS
    assert one.credential_id != two.credential_id
    assert tenants.identify(()).caller.tenant == ANONYMOUS


def test_the_first_credential_counts_and_is_the_one_that_is_passed_on():
    headers = ((b"x-api-key", b"k3"), (b"authorization", b"Bearer k1"), (b"api-key", b"k2"))
    identity = Tenants(None).identify(headers)
    assert identity.credential == b"Bearer k1"
    assert identity.caller == Tenants(None).identify(bearer("k1")).caller


def test_an_empty_authorization_leaves_room_for_the_other_headers():
    headers = ((b"authorization", b"Bearer "), (b"x-api-key", b"k1"))
    assert Tenants(None).identify(headers).credential == b"Bearer k1"


def test_of_a_header_that_is_there_twice_the_first_counts():
    headers = (*bearer("k1"), *bearer("k2"))
    assert Tenants(None).identify(headers).credential == b"Bearer k1"


def test_a_scheme_other_than_bearer_is_another_credential():
    basic = Tenants(None).identify(bearer("k1", scheme="Basic"))
    assert basic.credential == b"Basic k1"
    assert basic.caller != Tenants(None).identify(bearer("k1")).caller
