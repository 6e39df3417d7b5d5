"""Jobs ask for parts of GPUs, and those who share one hold its memory in parts, too."""

from django.db import migrations, models
from django.db.models import Q

# What has ended gives back; only who takes more is refused, so that a device may be found to have less than before.
COUNTERS = """
CREATE OR REPLACE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  taken integer;
  there integer;
BEGIN
  IF TG_OP <> 'INSERT' AND upper_inf(OLD.during) THEN
    UPDATE jobs_accelerator SET {share} = {share} + OLD.share_percent, {memory} = {memory} - OLD.memory_mib
      WHERE id = OLD.accelerator_id;
  END IF;
  IF TG_OP <> 'DELETE' AND upper_inf(NEW.during) THEN
    UPDATE jobs_accelerator SET {share} = {share} - NEW.share_percent, {memory} = {memory} + NEW.memory_mib
      WHERE id = NEW.accelerator_id RETURNING {memory}, memory_mib INTO taken, there;
    IF NEW.memory_mib > 0 AND there > 0 AND taken > there THEN
      RAISE EXCEPTION 'accelerator % has % MiB, and % would be taken', NEW.accelerator_id, there, taken
        USING ERRCODE = 'check_violation', CONSTRAINT = 'accelerator_memory_not_overfull';
    END IF;
  END IF;
  RETURN NULL;
END $$;
DROP TRIGGER {function} ON {table};
CREATE TRIGGER {function} AFTER INSERT OR DELETE OR UPDATE OF during, share_percent, memory_mib, accelerator_id
  ON {table} FOR EACH ROW EXECUTE FUNCTION {function}();
"""
BEFORE = """
CREATE OR REPLACE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP <> 'INSERT' AND upper_inf(OLD.during) THEN
    UPDATE jobs_accelerator SET {share} = {share} + OLD.share_percent WHERE id = OLD.accelerator_id;
  END IF;
  IF TG_OP <> 'DELETE' AND upper_inf(NEW.during) THEN
    UPDATE jobs_accelerator SET {share} = {share} - NEW.share_percent WHERE id = NEW.accelerator_id;
  END IF;
  RETURN NULL;
END $$;
DROP TRIGGER {function} ON {table};
CREATE TRIGGER {function} AFTER INSERT OR DELETE OR UPDATE OF during, share_percent, accelerator_id
  ON {table} FOR EACH ROW EXECUTE FUNCTION {function}();
"""
KEPT = [
    {
        "table": "jobs_hold",
        "function": "count_held_shares",
        "share": "free_share_percent",
        "memory": "held_memory_mib",
    },
    {
        "table": "jobs_assignment",
        "function": "count_planned_shares",
        "share": "unplanned_share_percent",
        "memory": "planned_memory_mib",
    },
]


class Migration(migrations.Migration):
    dependencies = [("jobs", "0025_run_links")]

    operations = [
        *(
            migrations.AddField("accelerator", kept["memory"], models.PositiveIntegerField(default=0, editable=False))
            for kept in KEPT
        ),
        *(
            migrations.AddField(model, "memory_mib", models.PositiveIntegerField(default=0))
            for model in ("hold", "assignment")
        ),
        migrations.AddField("job", "gpu_share_percent", models.PositiveSmallIntegerField(default=100)),
        migrations.AddField("job", "gpu_memory_mib", models.PositiveIntegerField(default=0)),
        migrations.AddConstraint(
            "job",
            models.CheckConstraint(
                condition=Q(gpu_share_percent=100) | Q(gpu_share_percent__range=(1, 99), min_gpus=1, max_gpus=1),
                name="job_part_is_of_one_gpu",
            ),
        ),
        *(migrations.RunSQL(COUNTERS.format(**kept), BEFORE.format(**kept)) for kept in KEPT),
    ]
