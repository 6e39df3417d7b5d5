export function TrustChip({ className = "" }: { className?: string }) {
  return <span className={`chip warn ${className}`} title="All jobs run as one system user, so they can read each other's files">single-trust mode</span>;
}
