"""Notices as e-mail, through the server in the portal's settings."""

from __future__ import annotations

from collections.abc import Sequence

from django.conf import settings
from django.core.mail import send_mail

from portal.jobs.loops import reraise_unless_item
from portal.notices.messages import as_mail
from portal.notices.models import Delivery
from portal.notices.transport.sending import Outcome

#: After this many seconds of a pass no further message is started.
BEGIN_WITHIN_S = 5.0
NOT_SET_UP = "This portal sends no e-mail; an administrator can set that up (EVENKEEL_EMAIL_URL)."


def is_set_up() -> bool:
    return bool(settings.EVENKEEL_EMAIL_URL)


def send(deliveries: Sequence[Delivery]) -> Outcome:
    """One message to the owner's present address."""
    if not is_set_up():
        return Outcome(False, error=NOT_SET_UP)
    destination = deliveries[0].destination
    mail = as_mail(deliveries, destination)
    try:
        send_mail(mail.subject, mail.body, None, [destination.user.email])
    except Exception as error:  # smtplib's, and invalid addresses: must never affect other destinations
        reraise_unless_item(error)
        return Outcome(False, error=f"The mail server did not take it: {error}"[:400])
    return Outcome(True)
