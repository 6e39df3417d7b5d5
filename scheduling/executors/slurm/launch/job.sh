#!/bin/sh
# One epoch of a run, as a batch job: job.sh EPOCH_DIR PYTHON MODE (nodes or delegate) [UMASK].
# The runner of the first node takes this script's place, so that Slurm's signals to the batch job reach it.
umask "${4:-077}"
# A request to end (SIGUSR1) that comes before the runner can take it is made again: it must not end the job as failed.
trap '' USR1
epoch_dir=$1 python=$2 mode=$3
# Whoever makes this directory runs the epoch: a job that was requeued, or sent twice, finds it made.
mkdir "$epoch_dir/claim" || exit 0
echo "$SLURM_JOB_ID" >"$epoch_dir/claim/job"
cd / || exit 1
unset SLURM_EXPORT_ENV
export EVENKEEL_NODE="$SLURMD_NODENAME" EVENKEEL_NODES=
follow() { # options of srun
  srun --quiet --export=ALL --overlap --kill-on-bad-exit=0 --mem=0 --ntasks-per-node=1 "$@" \
    sh -c 'trap "" USR1; exec "$0" -m evenkeel.runner "$1" --follow "$SLURMD_NODENAME"' "$python" "$epoch_dir" </dev/null &
}
groups=${SLURM_HET_SIZE:-1}
if [ "$groups" -gt 1 ]; then
  group=0
  while [ "$group" -lt "$groups" ]; do
    eval "list=\$SLURM_JOB_NODELIST_HET_GROUP_$group"
    [ "$mode" = delegate ] && EVENKEEL_NODES="$EVENKEEL_NODES $(scontrol show hostnames "$list" | tr '\n' ' ')"
    group=$((group + 1))
  done
  group=0
  while [ "$group" -lt "$groups" ]; do
    eval "count=\$SLURM_JOB_NUM_NODES_HET_GROUP_$group cpus=\$SLURM_CPUS_PER_TASK_HET_GROUP_$group"
    if [ "$group" -gt 0 ]; then
      follow --het-group="$group" --cpus-per-task="${cpus:-1}" --nodes="$count" --ntasks="$count"
    elif [ "$count" -gt 1 ]; then
      follow --het-group=0 --cpus-per-task="${cpus:-1}" --relative=1 --nodes="$((count - 1))" --ntasks="$((count - 1))"
    fi
    group=$((group + 1))
  done
else
  [ "$mode" = delegate ] && EVENKEEL_NODES=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | tr '\n' ' ')
  others=$((SLURM_JOB_NUM_NODES - 1))
  [ "$others" -gt 0 ] && follow --cpus-per-task="${SLURM_CPUS_PER_TASK:-1}" --relative=1 --nodes="$others" --ntasks="$others"
fi
exec "$python" -m evenkeel.runner "$epoch_dir"
