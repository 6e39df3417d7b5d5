import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { get, request, send, url } from "./client";
import { usePages } from "./pages";
import type { Simulation, SimulationCharts, SimulationComparison, SimulationFidelity, SimulationGantt, SimulationTable, SimulationTrace, SimulationWish } from "./types";

const isOpen = (simulation: Simulation) => simulation.state === "queued" || simulation.state === "running";

export const useSimulations = () => usePages<Simulation>("simulations", { limit: 25 }, { everyMs: 2_000 });

/** Read again every second until it has ended. */
export const useSimulation = (id: string) =>
  useQuery({
    queryKey: ["simulation", id],
    queryFn: ({ signal }) => get<Simulation>(`simulations/${id}`, {}, signal),
    refetchInterval: ({ state }) => (!state.data || isOpen(state.data) ? 1_000 : false),
  });

/** Results never change once they are there. */
function useResult<T>(id: string, what: string, query: Record<string, string>, enabled: boolean) {
  return useQuery({ queryKey: ["simulation", id, what, query], queryFn: ({ signal }) => get<T>(`simulations/${id}/${what}`, query, signal), enabled, staleTime: Infinity });
}

export const useSimulationTable = (id: string) => useResult<SimulationTable>(id, "table", {}, true);
export const useSimulationCharts = (id: string) => useResult<SimulationCharts>(id, "charts", {}, true);
export const useFidelity = (id: string) => useResult<SimulationFidelity>(id, "fidelity", {}, true);
export const useGantt = (id: string, trial: string) => useResult<SimulationGantt>(id, "gantt", { trial }, trial !== "");
export const useComparison = (id: string, base: string, other: string) => useResult<SimulationComparison>(id, "compare", { base, other }, base !== "" && other !== "" && base !== other);

function useLabChange<T, R>(change: (input: T) => Promise<R>) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: change,
    onSuccess: () => Promise.all([client.invalidateQueries({ queryKey: ["pages", "simulations"] }), client.invalidateQueries({ queryKey: ["simulation"] })]),
  });
}

export const useSimulate = () => useLabChange((wish: SimulationWish) => send<Simulation>("POST", "simulations", wish));
export const useCancelSimulation = () => useLabChange((id: string) => send<Simulation>("POST", `simulations/${id}/cancel`));
export const useRerunSimulation = () => useLabChange((id: string) => send<Simulation>("POST", `simulations/${id}/rerun`));
export const useRemoveSimulation = () => useLabChange((id: string) => send<void>("DELETE", `simulations/${id}`));

export const useUploadTrace = () =>
  useMutation({
    mutationFn: (file: File) => {
      const body = new FormData();
      body.append("file", file);
      return request<SimulationTrace>(url("simulation-traces"), { method: "POST", body });
    },
  });
