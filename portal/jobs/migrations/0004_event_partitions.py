"""Events lie in one partition per month, so that old ones are dropped rather than deleted row by row."""

from django.db import migrations
from django.utils import timezone

from portal.jobs import event_months

FORWARD = """
ALTER TABLE jobs_jobevent RENAME TO jobs_jobevent_whole;
ALTER SEQUENCE jobs_jobevent_id_seq RENAME TO jobs_jobevent_whole_id_seq;
CREATE SEQUENCE jobs_jobevent_id_seq;
SELECT setval('jobs_jobevent_id_seq', nextval('jobs_jobevent_whole_id_seq'), false);
CREATE TABLE jobs_jobevent (
  id bigint NOT NULL DEFAULT nextval('jobs_jobevent_id_seq'),
  at timestamptz NOT NULL,
  kind varchar(40) NOT NULL,
  from_state varchar(40) NOT NULL,
  to_state varchar(40) NOT NULL,
  text text NOT NULL,
  detail jsonb NOT NULL,
  job_id uuid NULL,
  project_id bigint NULL,
  run_id uuid NULL
) PARTITION BY RANGE (at);
ALTER SEQUENCE jobs_jobevent_id_seq OWNED BY jobs_jobevent.id;
CREATE TABLE jobs_jobevent_default PARTITION OF jobs_jobevent DEFAULT;
INSERT INTO jobs_jobevent SELECT id, at, kind, from_state, to_state, text, detail, job_id, project_id, run_id
  FROM jobs_jobevent_whole;
DROP TABLE jobs_jobevent_whole;
ALTER TABLE jobs_jobevent ADD PRIMARY KEY (id, at);
CREATE INDEX jobs_jobeve_job_id_33b160_idx ON jobs_jobevent (job_id, id DESC);
CREATE INDEX jobs_jobeve_project_69fcfd_idx ON jobs_jobevent (project_id, id DESC);
CREATE INDEX jobs_jobevent_run_id ON jobs_jobevent (run_id);
CREATE INDEX jobs_jobevent_at ON jobs_jobevent USING brin (at);
ALTER TABLE jobs_jobevent
  ADD CONSTRAINT jobs_jobevent_job_fk FOREIGN KEY (job_id) REFERENCES jobs_job DEFERRABLE INITIALLY DEFERRED,
  ADD CONSTRAINT jobs_jobevent_run_fk FOREIGN KEY (run_id) REFERENCES jobs_run DEFERRABLE INITIALLY DEFERRED,
  ADD CONSTRAINT jobs_jobevent_project_fk FOREIGN KEY (project_id) REFERENCES accounts_project
    DEFERRABLE INITIALLY DEFERRED;
"""


def make_partitions(apps: object, schema_editor: object) -> None:
    event_months.ensure(timezone.now())


class Migration(migrations.Migration):
    dependencies = [("jobs", "0003_shares"), ("accounts", "0001_initial")]

    operations = [
        migrations.RunSQL(FORWARD),
        migrations.RunPython(make_partitions, migrations.RunPython.noop),
    ]
