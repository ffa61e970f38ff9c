// Chooses the ranks that are requested for a capsule, and the step.

#include <algorithm>
#include <limits>
#include <random>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "server/capsules/capsule_keeper.h"
#include "server/process/log.h"

namespace plumbline::server {
namespace {

// Steps after the newest known step.
constexpr int64_t kFirstMargin = 4;
constexpr int64_t kLastMargin = 4096;
constexpr size_t kMostTaking = 2;  // of one run at the same time

uint64_t RandomId() {
  std::random_device random;
  const uint64_t id = (static_cast<uint64_t>(random()) << 32) | random();
  return id == 0 ? 1 : id;
}

// Returns the margin of the n-th try: twice the previous margin, which was too small for some rank.
int64_t MarginOf(uint32_t tries) {
  int64_t margin = kFirstMargin;
  while (--tries > 0 && margin < kLastMargin) margin *= 2;
  return margin;
}

v1::Site SiteOf(const v1::Finding& finding) {
  v1::Site site;
  site.set_layer(finding.site().layer());
  site.set_op(finding.site().op());
  return site;
}

}  // namespace

CapsuleKeeper::Capsule* CapsuleKeeper::Begin(const v1::Finding& finding) {
  Capsule& capsule = capsules_[finding.fingerprint()];
  by_id_.erase(capsule.info.id());
  capsule = Capsule();
  v1::CapsuleInfo& info = capsule.info;
  info.set_id(RandomId());
  by_id_[info.id()] = &capsule;
  *info.mutable_finding() = finding;
  info.set_unix_ns(static_cast<int64_t>(UnixNs()));
  capsule.begun = Clock::now();
  info.set_max_rank_bytes(options_.rank_bytes);
  info.set_state(v1::CapsuleInfo::STATE_WAITING);
  if (MayTake(capsule, FindTaking())) {
    Take(&capsule);
  } else {
    Save(capsule);
  }
  return &capsule;
}

void CapsuleKeeper::Note(const Capsule& capsule, Taking* taking) {
  const v1::FindingSite& of = capsule.info.finding().site();
  if (capsule.info.state() == v1::CapsuleInfo::STATE_TAKING)
    (*taking)[of.run()].emplace_back(of.layer(), of.op());
}

CapsuleKeeper::Taking CapsuleKeeper::FindTaking() const {
  Taking taking;
  for (const auto& [fingerprint, capsule] : capsules_) Note(capsule, &taking);
  return taking;
}

void CapsuleKeeper::BeginWaiting() {
  Taking taking = FindTaking();
  for (auto& [fingerprint, capsule] : capsules_) {
    if (capsule.info.state() != v1::CapsuleInfo::STATE_WAITING || !MayTake(capsule, taking))
      continue;
    Take(&capsule);
    Note(capsule, &taking);
  }
}

// Limits capsules of a run: a site of a process is taken once at a time, and few sites at the same
// time.
bool CapsuleKeeper::MayTake(const Capsule& capsule, const Taking& taking) const {
  const v1::FindingSite& site = capsule.info.finding().site();
  if (const auto of_run = taking.find(site.run()); of_run != taking.end()) {
    const std::pair<std::string, std::string> place(site.layer(), site.op());
    if (of_run->second.size() >= kMostTaking ||
        std::find(of_run->second.begin(), of_run->second.end(), place) != of_run->second.end())
      return false;
  }
  const auto now = Clock::now();
  return now >= capsule.begun + 2 * options_.grace ||
         !run_processes_.MoreMayCome(site, known_(site.run()).worlds, now);
}

void CapsuleKeeper::Take(Capsule* capsule) {
  v1::CapsuleInfo& info = capsule->info;
  info.set_state(v1::CapsuleInfo::STATE_TAKING);
  capsule->newest = known_(info.finding().site().run()).newest_step;
  AddRanks(capsule);
  if (info.ranks().empty()) {
    info.set_error("not-connected: no process of the run is connected");
    info.set_state(v1::CapsuleInfo::STATE_FAILED);
    return Save(*capsule);
  }
  LogInfo("capsule {:016x}: {} {:?} {:?}, {} ranks are queried", info.id(), info.finding().rule(),
          info.finding().site().run(), info.finding().site().layer(), info.ranks_size());
  QueryAll(capsule);
}

// Adds every process of the newest attempt: first those that the finding names, then by rank.
void CapsuleKeeper::AddRanks(Capsule* capsule) {
  const v1::FindingSite& site = capsule->info.finding().site();
  std::vector<RunProcesses::Process> found = run_processes_.ProcessesOf(site.run());
  if (found.empty()) return;
  const std::set<uint32_t> named(site.ranks().begin(), site.ranks().end());
  const auto order = [&](const RunProcesses::Process& p) {
    return std::make_tuple(named.count(p.source.rank()) == 0, p.source.rank(),
                           static_cast<int>(p.source.role()),
                           !run_processes_.Of(p.stream)->follows);
  };
  std::sort(found.begin(), found.end(),
            [&](const auto& a, const auto& b) { return order(a) < order(b); });
  // If a process has several streams, keeps the one that takes directives.
  found.erase(
      std::unique(found.begin(), found.end(),
                  [](const auto& a, const auto& b) { return SameProcess(a.source, b.source); }),
      found.end());
  for (const auto& [id, source] : found) {
    if (static_cast<uint32_t>(capsule->info.ranks_size()) == options_.ranks) break;
    v1::CapsuleRank& rank = *capsule->info.add_ranks();
    *rank.mutable_source() = source;
    rank.set_state(v1::CapsuleRank::STATE_ASKED);
    capsule->ranks.push_back({id});
    const RunProcesses::Stream& stream = *run_processes_.Of(id);
    if (stream.follows) continue;
    rank.set_state(v1::CapsuleRank::STATE_FAILED);
    rank.set_error(absl::StrCat("old-agent: its agent (", stream.tool_version,
                                ") does not support directives"));
  }
  capsule->info.set_omitted_ranks(
      static_cast<uint32_t>(found.size() - static_cast<size_t>(capsule->info.ranks_size())));
  AddAway(capsule, found.front().source.attempt());
}

// Adds ranks that the finding names and that are not connected, and marks them as missing.
void CapsuleKeeper::AddAway(Capsule* capsule, uint32_t attempt) {
  v1::CapsuleInfo& info = capsule->info;
  const v1::FindingSite site = info.finding().site();
  std::set<uint32_t> away(site.ranks().begin(), site.ranks().end());
  for (const auto& process : run_processes_.ProcessesOf(site.run()))
    away.erase(process.source.rank());
  for (const uint32_t number : away) {
    if (static_cast<uint32_t>(info.ranks_size()) == options_.ranks) {
      info.set_omitted_ranks(info.omitted_ranks() + 1);
      continue;
    }
    v1::CapsuleRank& rank = *info.add_ranks();
    rank.mutable_source()->set_run(site.run());
    rank.mutable_source()->set_rank(number);
    rank.mutable_source()->set_attempt(attempt);
    rank.set_state(v1::CapsuleRank::STATE_FAILED);
    rank.set_error("away: no process of this rank is connected");
    capsule->ranks.emplace_back();
  }
}

// Requests a step ahead of all ranks; twice as far as before if that was not enough.
void CapsuleKeeper::QueryAll(Capsule* capsule) {
  v1::CapsuleInfo& info = capsule->info;
  capsule->retry_at = Clock::time_point::max();
  if (std::exchange(capsule->passed, false) || info.tries() == 0) info.set_tries(info.tries() + 1);
  const int64_t known = known_(info.finding().site().run()).newest_step;
  info.set_step(std::max({capsule->newest, known, int64_t{-1}}) + MarginOf(info.tries()));
  files_.RemoveRanks(info);
  for (int i = 0; i < info.ranks_size(); ++i) {
    v1::CapsuleRank& rank = *info.mutable_ranks(i);
    if (rank.state() == v1::CapsuleRank::STATE_FAILED) continue;
    rank.set_state(v1::CapsuleRank::STATE_ASKED);
    rank.set_bytes(0);
    rank.set_total(0);
    rank.clear_sha256();
    Query(capsule, i);
  }
  Save(*capsule);
  Settle(capsule);
}

void CapsuleKeeper::Query(Capsule* capsule, int index) {
  v1::Directive directive;
  v1::SendCapsule& order = *directive.mutable_capsule();
  order.set_capsule(capsule->info.id());
  *order.mutable_site() = SiteOf(capsule->info.finding());
  order.set_step(capsule->info.step());
  order.set_max_bytes(capsule->info.max_rank_bytes());
  order.set_offset(capsule->info.ranks(index).bytes());
  Rank& rank = capsule->ranks[static_cast<size_t>(index)];
  rank.spoke = Clock::now();
  Direct(rank.stream, std::move(directive));
}

void CapsuleKeeper::Release(const Capsule& capsule, int index) {
  v1::Directive directive;
  directive.mutable_capsule()->set_capsule(capsule.info.id());
  directive.mutable_capsule()->set_release(true);
  Direct(capsule.ranks[static_cast<size_t>(index)].stream, std::move(directive));
}

void CapsuleKeeper::Direct(uint64_t stream_id, v1::Directive directive) {
  const RunProcesses::Stream* stream = run_processes_.Of(stream_id);
  if (stream == nullptr || !stream->follows) return;
  directive.set_stream_id(stream_id);
  ++counters_->directives;
  if (auto line = stream->line.lock()) line->OnDirective(directive);
}

void CapsuleKeeper::SampleDensely(const v1::Finding& finding) {
  if (options_.dense_steps <= 0) return;
  v1::Directive directive;
  *directive.mutable_sample()->mutable_site() = SiteOf(finding);
  directive.mutable_sample()->set_every(1);
  const int64_t margin = kFirstMargin + options_.dense_steps;
  const int64_t newest = std::min(known_(finding.site().run()).newest_step,
                                  std::numeric_limits<int64_t>::max() - margin);
  directive.mutable_sample()->set_until_step(newest + margin);
  for (const uint64_t id : run_processes_.StreamsOf(finding.site().run())) Direct(id, directive);
}

// Requests the missing parts of a process that has connected, possibly again.
void CapsuleKeeper::TakeUp(uint64_t stream_id) {
  const std::vector<v1::Source>& sources = run_processes_.Of(stream_id)->sources;
  for (auto& [fingerprint, capsule] : capsules_) {
    if (capsule.info.state() != v1::CapsuleInfo::STATE_TAKING) continue;
    for (int i = 0; i < capsule.info.ranks_size(); ++i) {
      const v1::CapsuleRank& rank = capsule.info.ranks(i);
      if (std::none_of(sources.begin(), sources.end(),
                       [&](const v1::Source& s) { return SameProcess(s, rank.source()); })) {
        continue;
      }
      // A finished rank may be requested again for another step, because another rank was past this
      // step.
      capsule.ranks[static_cast<size_t>(i)].stream = stream_id;
      if (rank.state() == v1::CapsuleRank::STATE_ASKED) Query(&capsule, i);
      if (rank.state() == v1::CapsuleRank::STATE_HELD) Release(capsule, i);
    }
  }
}

}  // namespace plumbline::server
