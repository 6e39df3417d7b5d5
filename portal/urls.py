from django.contrib import admin
from django.urls import include, path, re_path

from portal.api.http import errors
from portal.web import monitoring, views

urlpatterns = [
    path("healthz", views.healthz),
    path("readyz", views.readyz),
    path("metrics", monitoring.MetricsView.as_view()),
    path("api/docs", views.api_docs),
    path("api/v1/", include("portal.api.urls")),
    # Pages of the front end for administrators; what else is below /admin/ is Django's own.
    re_path(r"^admin/(?:people|prices|rates|audit)$", views.index),
    path("admin/", admin.site.urls),
    path("accounts/", include("accounts.urls")),
    re_path(r"^(?!api/|admin/|static/|ws/).*$", views.index),
]

handler400 = errors.handler400
handler403 = errors.handler403
handler404 = errors.handler404
handler500 = errors.handler500
