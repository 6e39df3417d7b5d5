"""An accelerator can be held in shares: free counters kept by trigger beside the exclusion constraint."""

from django.contrib.postgres.constraints import ExclusionConstraint
from django.contrib.postgres.fields import RangeOperators
from django.db import migrations, models
from django.db.models import F, Func, Q, Value

# `during` without an upper end is what counts now; what has ended gives its share back.
COUNTERS = """
CREATE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP <> 'INSERT' AND upper_inf(OLD.during) THEN
    UPDATE jobs_accelerator SET {column} = {column} + OLD.share_percent WHERE id = OLD.accelerator_id;
  END IF;
  IF TG_OP <> 'DELETE' AND upper_inf(NEW.during) THEN
    UPDATE jobs_accelerator SET {column} = {column} - NEW.share_percent WHERE id = NEW.accelerator_id;
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER {function} AFTER INSERT OR DELETE OR UPDATE OF during, share_percent, accelerator_id
  ON {table} FOR EACH ROW EXECUTE FUNCTION {function}();
UPDATE jobs_accelerator SET {column} = 100 - taken.share FROM (
  SELECT accelerator_id, sum(share_percent) AS share FROM {table} WHERE upper_inf(during) GROUP BY accelerator_id
) AS taken WHERE taken.accelerator_id = jobs_accelerator.id;
"""
DROP = "DROP FUNCTION {function}() CASCADE;"
KEPT = [
    {"table": "jobs_hold", "column": "free_share_percent", "function": "count_held_shares"},
    {"table": "jobs_assignment", "column": "unplanned_share_percent", "function": "count_planned_shares"},
]


def _share(name: str) -> models.CheckConstraint:
    return models.CheckConstraint(condition=Q(share_percent__range=(1, 100)), name=name)


def _exclusive(name: str) -> ExclusionConstraint:
    gpu = Func(F("accelerator_id"), F("accelerator_id"), Value("[]"), function="int8range")
    return ExclusionConstraint(
        name=name,
        expressions=[(gpu, RangeOperators.OVERLAPS), ("during", RangeOperators.OVERLAPS)],
        condition=Q(share_percent=100),
    )


class Migration(migrations.Migration):
    dependencies = [("jobs", "0002_job_number_seq")]

    operations = [
        *(
            migrations.AddField("accelerator", kept["column"], models.SmallIntegerField(default=100, editable=False))
            for kept in KEPT
        ),
        *(
            migrations.AddField(model, "share_percent", models.PositiveSmallIntegerField(default=100))
            for model in ("hold", "assignment")
        ),
        migrations.AddConstraint("hold", _share("hold_share_in_percent")),
        migrations.AddConstraint("assignment", _share("assignment_share_in_percent")),
        migrations.RemoveConstraint("hold", "accelerator_held_once"),
        migrations.AddConstraint("hold", _exclusive("accelerator_held_once")),
        migrations.RemoveConstraint("assignment", "accelerator_assigned_once"),
        migrations.AddConstraint("assignment", _exclusive("accelerator_assigned_once")),
        migrations.AddConstraint(
            "accelerator",
            models.CheckConstraint(
                condition=Q(free_share_percent__gte=0, unplanned_share_percent__gte=0), name="accelerator_not_overfull"
            ),
        ),
        *(migrations.RunSQL(COUNTERS.format(**kept), DROP.format(**kept)) for kept in KEPT),
    ]
