import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { get, send } from "./client";
import type { Page, Template, TemplateSummary } from "./types";

export const useTemplates = (wanted = true) =>
  useQuery({ queryKey: ["templates"], enabled: wanted, queryFn: ({ signal }) => get<Page<TemplateSummary>>("templates", { limit: 200 }, signal), staleTime: 30_000 });

export interface TemplateWish {
  name: string;
  description: string;
  file: Record<string, unknown>;
  project?: string;
}

function useTemplateChange<T, R>(change: (input: T) => Promise<R>) {
  const client = useQueryClient();
  return useMutation({ mutationFn: change, onSuccess: () => client.invalidateQueries({ queryKey: ["templates"] }) });
}
export const useReadTemplate = () => useMutation({ mutationFn: (id: number) => get<Template>(`templates/${id}`) });
export const useCreateTemplate = () => useTemplateChange((body: TemplateWish) => send<Template>("POST", "templates", body));
export const useChangeTemplate = () => useTemplateChange(({ id, body }: { id: number; body: TemplateWish }) => send<Template>("PUT", `templates/${id}`, body));
export const useRemoveTemplate = () => useTemplateChange((id: number) => send<void>("DELETE", `templates/${id}`));
