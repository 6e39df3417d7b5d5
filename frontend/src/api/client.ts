import { chosenCluster, isOfCluster } from "../lib/live/cluster";
import type { ProblemDocument } from "./types";
import { sentenceOf } from "../lib/isolated";

const ROOT = "/api/v1/";

/** An answer that was not a success, as RFC 9457 describes it. */
export class ApiError extends Error {
  readonly status: number;
  readonly errors: { field: string; message: string }[];

  constructor(problem: ProblemDocument) {
    super(sentenceOf(problem.detail ?? problem.title ?? `The portal answered ${problem.status}.`));
    this.name = "ApiError";
    this.status = problem.status;
    this.errors = (problem.errors ?? []).map((one) => ({ ...one, message: sentenceOf(one.message) }));
  }
}

function cookie(name: string): string {
  const found = document.cookie.split("; ").find((part) => part.startsWith(`${name}=`));
  return found ? decodeURIComponent(found.slice(name.length + 1)) : "";
}

export type Query = Record<string, string | number | boolean | string[] | null | undefined>;

export function url(path: string, query: Query = {}): string {
  const params = new URLSearchParams();
  for (const [key, value] of Object.entries(query)) {
    if (Array.isArray(value)) for (const entry of value) params.append(key, entry);
    else if (value !== undefined && value !== null && value !== "") params.set(key, String(value));
  }
  const cluster = chosenCluster();
  if (cluster !== null && isOfCluster(path) && !params.has("cluster")) params.set("cluster", cluster);
  const text = params.toString();
  return ROOT + path + (text ? `?${text}` : "");
}

async function problemOf(response: Response): Promise<ProblemDocument> {
  const fallback = { status: response.status, title: `The portal answered ${response.status}.` };
  try {
    const body: unknown = await response.json();
    return typeof body === "object" && body !== null ? { ...fallback, ...body, status: response.status } : fallback;
  } catch {
    return fallback;
  }
}

interface Options {
  method?: string;
  body?: unknown;
  headers?: Record<string, string>;
  signal?: AbortSignal;
}

export async function request<T>(target: string, options: Options = {}): Promise<T> {
  const method = options.method ?? "GET";
  const headers: Record<string, string> = { Accept: "application/json", ...options.headers };
  if (method !== "GET") headers["X-CSRFToken"] = cookie("csrftoken");
  const init: RequestInit = { method, headers, credentials: "same-origin" };
  if (options.body instanceof FormData) init.body = options.body; // its boundary is the browser's to say
  else if (options.body !== undefined) {
    headers["Content-Type"] ??= "application/json";
    init.body = typeof options.body === "string" ? options.body : JSON.stringify(options.body);
  }
  if (options.signal) init.signal = options.signal;
  let response: Response;
  try {
    response = await fetch(target, init);
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new ApiError({ status: 0, title: "The portal cannot be reached." });
  }
  if (!response.ok) throw new ApiError(await problemOf(response));
  if (response.status === 204) return undefined as T;
  return (await response.json()) as T;
}

export function get<T>(path: string, query?: Query, signal?: AbortSignal): Promise<T> {
  return request<T>(url(path, query), signal ? { signal } : {});
}

export function send<T>(method: string, path: string, body?: unknown, headers?: Record<string, string>): Promise<T> {
  return request<T>(url(path), { method, body, ...(headers ? { headers } : {}) });
}
