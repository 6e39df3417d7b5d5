from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("jobs", "0001_initial")]

    operations = [migrations.RunSQL("CREATE SEQUENCE job_number_seq", "DROP SEQUENCE job_number_seq")]
