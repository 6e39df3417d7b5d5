"""The two addresses of sign-in by OpenID Connect, under the names used by django-allauth."""

from allauth.socialaccount.providers.openid_connect.views import callback
from django.urls import path

from accounts.oidc import begin_sign_in

urlpatterns = [
    path("oidc/<str:provider_id>/login/", begin_sign_in, name="openid_connect_login"),
    path("oidc/<str:provider_id>/login/callback/", callback, name="openid_connect_callback"),
]
