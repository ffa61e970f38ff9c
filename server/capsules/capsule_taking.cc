// How one capsule is taken: who is asked, what comes, what is asked again.
#include <spdlog/spdlog.h>

#include <algorithm>
#include <random>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/crc32c.h"
#include "base/sha256.h"
#include "plumbline/v1/batch.pb.h"
#include "server/capsules/capsule_keeper.h"

namespace plumbline::server {
namespace {

// Steps beyond the newest that is known.
constexpr int64_t kFirstMargin = 4;
constexpr int64_t kLastMargin = 4096;
constexpr uint32_t kMostTries = 12;
constexpr int kMostCalls = 4;  // ... while the site is not called in every step
constexpr int kMostAgain = 8;
constexpr int kMostTaking = 2;  // of one run at once
// Ranks that were past the step answer together.
constexpr std::chrono::milliseconds kGather{40};

uint64_t RandomId() {
  std::random_device random;
  const uint64_t id = (static_cast<uint64_t>(random()) << 32) | random();
  return id == 0 ? 1 : id;
}

// Of the n-th try: twice that of the one before.
int64_t MarginOf(uint32_t tries) {
  int64_t margin = kFirstMargin;
  while (--tries > 0 && margin < kLastMargin) margin *= 2;
  return margin;
}

bool SameProcess(const v1::Source& a, const v1::Source& b) {
  return a.rank() == b.rank() && a.role() == b.role() && a.attempt() == b.attempt() &&
         a.run() == b.run();
}

v1::Site SiteOf(const v1::Finding& finding) {
  v1::Site site;
  site.set_layer(finding.site().layer());
  site.set_op(finding.site().op());
  return site;
}

std::string_view IdOf(const std::string& error) {
  return std::string_view(error).substr(0, error.find(':'));
}

}  // namespace

// ---- who is asked --------------------------------------------------------------------------

CapsuleKeeper::Capsule* CapsuleKeeper::Begin(const v1::Finding& finding) {
  Capsule& capsule = capsules_[finding.fingerprint()];
  capsule = Capsule();
  v1::CapsuleInfo& info = capsule.info;
  info.set_id(RandomId());
  *info.mutable_finding() = finding;
  info.set_unix_ns(static_cast<int64_t>(UnixNs()));
  info.set_max_rank_bytes(options_.rank_bytes);
  info.set_state(v1::CapsuleInfo::STATE_WAITING);
  if (MayTake(capsule)) {
    Take(&capsule);
  } else {
    Save(capsule);
  }
  return &capsule;
}

void CapsuleKeeper::BeginWaiting() {
  for (auto& [fingerprint, capsule] : capsules_) {
    if (capsule.info.state() == v1::CapsuleInfo::STATE_WAITING && MayTake(capsule)) Take(&capsule);
  }
}

// A site of a process is taken once at a time, and few sites at once.
bool CapsuleKeeper::MayTake(const Capsule& capsule) const {
  const v1::FindingSite& site = capsule.info.finding().site();
  if (attendance_.MoreMayCome(site, Clock::now())) return false;
  int taking = 0;
  for (const auto& [fingerprint, other] : capsules_) {
    const v1::FindingSite& of = other.info.finding().site();
    if (other.info.state() != v1::CapsuleInfo::STATE_TAKING || of.run() != site.run()) continue;
    if (of.layer() == site.layer() && of.op() == site.op()) return false;
    ++taking;
  }
  return taking < kMostTaking;
}

void CapsuleKeeper::Take(Capsule* capsule) {
  v1::CapsuleInfo& info = capsule->info;
  info.set_state(v1::CapsuleInfo::STATE_TAKING);
  capsule->newest = newest_step_(info.finding().site().run());
  AddRanks(capsule);
  if (info.ranks().empty()) {
    info.set_error("nobody: no process of the run is connected");
    info.set_state(v1::CapsuleInfo::STATE_FAILED);
    return Save(*capsule);
  }
  spdlog::info("capsule {:016x}: {} {:?} {:?}, {} ranks are asked", info.id(),
               info.finding().rule(), info.finding().site().run(), info.finding().site().layer(),
               info.ranks_size());
  AskAll(capsule);
}

// Every process of the newest attempt: those that the finding names first, then by rank.
void CapsuleKeeper::AddRanks(Capsule* capsule) {
  const v1::FindingSite& site = capsule->info.finding().site();
  std::vector<Attendance::Process> found = attendance_.ProcessesOf(site.run());
  if (found.empty()) return;
  const std::set<uint32_t> named(site.ranks().begin(), site.ranks().end());
  const auto order = [&](const v1::Source& s) {
    return std::make_tuple(named.count(s.rank()) == 0, s.rank(), static_cast<int>(s.role()));
  };
  std::sort(found.begin(), found.end(),
            [&](const auto& a, const auto& b) { return order(a.source) < order(b.source); });
  for (const auto& [id, source] : found) {
    if (static_cast<uint32_t>(capsule->info.ranks_size()) == options_.ranks) break;
    v1::CapsuleRank& rank = *capsule->info.add_ranks();
    *rank.mutable_source() = source;
    rank.set_state(v1::CapsuleRank::STATE_ASKED);
    capsule->ranks.push_back({id});
    const Attendance::Stream& stream = *attendance_.Of(id);
    if (stream.follows) continue;
    rank.set_state(v1::CapsuleRank::STATE_FAILED);
    rank.set_error(
        absl::StrCat("old-agent: its agent (", stream.tool_version, ") takes no directives"));
  }
  capsule->info.set_omitted_ranks(
      static_cast<uint32_t>(found.size() - static_cast<size_t>(capsule->info.ranks_size())));
  AddAway(capsule, found.front().source.attempt());
}

// Ranks that the finding names and that are not connected are missing, and are said to be.
void CapsuleKeeper::AddAway(Capsule* capsule, uint32_t attempt) {
  v1::CapsuleInfo& info = capsule->info;
  const v1::FindingSite site = info.finding().site();
  std::set<uint32_t> away(site.ranks().begin(), site.ranks().end());
  for (const auto& process : attendance_.ProcessesOf(site.run())) away.erase(process.source.rank());
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

// For a step twice as far ahead as before.
void CapsuleKeeper::AskAll(Capsule* capsule) {
  v1::CapsuleInfo& info = capsule->info;
  capsule->retry_at = Clock::time_point::max();
  info.set_tries(info.tries() + 1);
  const int64_t known = newest_step_(info.finding().site().run());
  info.set_step(std::max({capsule->newest, known, int64_t{-1}}) + MarginOf(info.tries()));
  files_.RemoveRanks(info);
  for (int i = 0; i < info.ranks_size(); ++i) {
    v1::CapsuleRank& rank = *info.mutable_ranks(i);
    if (rank.state() == v1::CapsuleRank::STATE_FAILED) continue;
    rank.set_state(v1::CapsuleRank::STATE_ASKED);
    rank.set_bytes(0);
    rank.set_total(0);
    rank.clear_sha256();
    Ask(capsule, i);
  }
  Save(*capsule);
  Settle(capsule);
}

void CapsuleKeeper::Ask(Capsule* capsule, int index) {
  v1::Directive directive;
  v1::SendCapsule& order = *directive.mutable_capsule();
  order.set_capsule(capsule->info.id());
  *order.mutable_site() = SiteOf(capsule->info.finding());
  order.set_step(capsule->info.step());
  order.set_max_bytes(capsule->info.max_rank_bytes());
  order.set_offset(capsule->info.ranks(index).bytes());
  Direct(capsule->ranks[static_cast<size_t>(index)].stream, std::move(directive));
}

void CapsuleKeeper::Release(const Capsule& capsule, int index) {
  v1::Directive directive;
  directive.mutable_capsule()->set_capsule(capsule.info.id());
  directive.mutable_capsule()->set_release(true);
  Direct(capsule.ranks[static_cast<size_t>(index)].stream, std::move(directive));
}

void CapsuleKeeper::Direct(uint64_t stream_id, v1::Directive directive) {
  const Attendance::Stream* stream = attendance_.Of(stream_id);
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
  const int64_t newest = newest_step_(finding.site().run());
  directive.mutable_sample()->set_until_step(newest + kFirstMargin + options_.dense_steps);
  for (const uint64_t id : attendance_.StreamsOf(finding.site().run())) Direct(id, directive);
}

// A process is there, again perhaps: it is asked for what is missing of it.
void CapsuleKeeper::TakeUp(uint64_t stream_id) {
  const std::vector<v1::Source>& sources = attendance_.Of(stream_id)->sources;
  for (auto& [fingerprint, capsule] : capsules_) {
    if (capsule.info.state() != v1::CapsuleInfo::STATE_TAKING) continue;
    for (int i = 0; i < capsule.info.ranks_size(); ++i) {
      v1::CapsuleRank& rank = *capsule.info.mutable_ranks(i);
      if (rank.state() != v1::CapsuleRank::STATE_ASKED ||
          std::none_of(sources.begin(), sources.end(),
                       [&](const v1::Source& s) { return SameProcess(s, rank.source()); })) {
        continue;
      }
      capsule.ranks[static_cast<size_t>(i)].stream = stream_id;
      Ask(&capsule, i);
    }
  }
}

// ---- what comes ----------------------------------------------------------------------------

void CapsuleKeeper::PartCame(uint64_t stream_id, const v1::CapsulePart& part) {
  for (auto& [fingerprint, capsule] : capsules_) {
    v1::CapsuleInfo& info = capsule.info;
    if (info.id() != part.capsule() || info.state() != v1::CapsuleInfo::STATE_TAKING ||
        info.step() != part.step()) {
      continue;
    }
    for (int i = 0; i < info.ranks_size(); ++i) {
      if (capsule.ranks[static_cast<size_t>(i)].stream != stream_id ||
          info.ranks(i).state() != v1::CapsuleRank::STATE_ASKED) {
        continue;
      }
      if (!part.error().empty()) {
        Refused(&capsule, i, part);
      } else if (part.offset() < info.ranks(i).bytes()) {
        return;  // sent before the server had said how far it is
      } else if (auto s = Check(capsule, i, part); !s.ok()) {
        AskAgain(&capsule, i, s);
      } else if (s = Finish(&capsule, i, part); !s.ok()) {
        files_.Truncate(info, info.ranks(i).source());
        info.mutable_ranks(i)->set_bytes(0);
        AskAgain(&capsule, i, s);
      }
      Settle(&capsule);
      return;
    }
  }
}

void CapsuleKeeper::Refused(Capsule* capsule, int index, const v1::CapsulePart& part) {
  const std::string_view id = IdOf(part.error());
  if (id == "no-site") {
    capsule->info.add_without_site(capsule->info.ranks(index).source().rank());
    capsule->info.mutable_ranks()->DeleteSubrange(index, 1);
    capsule->ranks.erase(capsule->ranks.begin() + index);
    return;
  }
  Rank& rank = capsule->ranks[static_cast<size_t>(index)];
  const bool hopeless = id == "passed-step" ? capsule->info.tries() >= kMostTries
                        : id == "no-call"   ? ++rank.without_call >= kMostCalls
                                            : true;
  if (hopeless) return FailRank(capsule, index, part.error());
  capsule->newest = std::max(capsule->newest, part.newest_step());
  capsule->retry_at = std::min(capsule->retry_at, Clock::now() + kGather);
}

absl::Status CapsuleKeeper::Check(const Capsule& capsule, int index,
                                  const v1::CapsulePart& part) const {
  const v1::CapsuleRank& rank = capsule.info.ranks(index);
  const std::string& data = part.data();
  if (part.offset() != rank.bytes()) {
    return absl::DataLossError(
        absl::StrCat("expected byte ", rank.bytes(), ", found ", part.offset()));
  }
  if (part.total() > capsule.info.max_rank_bytes() || data.empty() ||
      data.size() > part.total() - part.offset() ||
      (rank.total() != 0 && rank.total() != part.total()) ||
      part.last() != (part.offset() + data.size() == part.total())) {
    return absl::DataLossError("the part's sizes do not fit");
  }
  if (Crc32c(data.data(), data.size()) != part.crc32c()) {
    return absl::DataLossError("the part's checksum does not fit");
  }
  return absl::OkStatus();
}

// Writes a part that fits; the last one ends the rank.
absl::Status CapsuleKeeper::Finish(Capsule* capsule, int index, const v1::CapsulePart& part) {
  v1::CapsuleRank& rank = *capsule->info.mutable_ranks(index);
  const v1::Source& source = rank.source();
  if (auto s = files_.Append(capsule->info, source, part.data()); !s.ok()) return s;
  rank.set_total(part.total());
  rank.set_bytes(rank.bytes() + part.data().size());
  if (!part.last()) return absl::OkStatus();
  const auto whole = files_.ReadPart(capsule->info, source);
  if (!whole.ok()) return whole.status();
  std::string digest = Sha256Of(*whole);
  v1::Batch batch;
  if (digest != part.sha256()) return absl::DataLossError("the digest does not fit");
  if (!batch.ParseFromString(*whole) || batch.sources_size() != 1 ||
      !SameProcess(batch.sources(0), source)) {
    return absl::DataLossError("what was sent is no evidence of this rank");
  }
  if (auto s = files_.Keep(capsule->info, source); !s.ok()) return s;
  rank.set_state(v1::CapsuleRank::STATE_HELD);
  rank.set_sha256(std::move(digest));
  Save(*capsule);
  Release(*capsule, index);
  return absl::OkStatus();
}

void CapsuleKeeper::AskAgain(Capsule* capsule, int index, const absl::Status& why) {
  ++counters_->capsule_errors;
  Rank& rank = capsule->ranks[static_cast<size_t>(index)];
  if (++rank.again > kMostAgain) {
    return FailRank(capsule, index, absl::StrCat("damaged: ", std::string(why.message())));
  }
  Ask(capsule, index);
}

void CapsuleKeeper::FailRank(Capsule* capsule, int index, const std::string& why) {
  v1::CapsuleRank& rank = *capsule->info.mutable_ranks(index);
  rank.set_state(v1::CapsuleRank::STATE_FAILED);
  rank.set_error(why);
  rank.set_bytes(0);
  files_.Truncate(capsule->info, rank.source());
  Release(*capsule, index);
}

// When nobody is waited for any more, the capsule is what it is.
void CapsuleKeeper::Settle(Capsule* capsule) {
  v1::CapsuleInfo& info = capsule->info;
  if (capsule->retry_at != Clock::time_point::max()) return;
  int held = 0;
  for (const v1::CapsuleRank& rank : info.ranks()) {
    if (rank.state() == v1::CapsuleRank::STATE_ASKED) return;
    held += rank.state() == v1::CapsuleRank::STATE_HELD;
  }
  info.set_state(held == 0                   ? v1::CapsuleInfo::STATE_FAILED
                 : held == info.ranks_size() ? v1::CapsuleInfo::STATE_COMPLETE
                                             : v1::CapsuleInfo::STATE_PARTIAL);
  if (held == 0) {
    info.set_error(info.ranks().empty() ? "no-site: no connected process has this site"
                                        : info.ranks(0).error());
  }
  spdlog::info("capsule {:016x}: step {}, {} of {} ranks held", info.id(), info.step(), held,
               info.ranks_size());
  Save(*capsule);
  grown_ = true;
}

}  // namespace plumbline::server
