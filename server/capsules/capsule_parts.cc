// Answers of a capsule's ranks: checks and stores parts, handles refusals, and finishes the
// capsule.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/crc32c.h"
#include "base/sha256.h"
#include "plumbline/v1/batch.pb.h"
#include "server/capsules/capsule_keeper.h"
#include "server/process/log.h"

namespace plumbline::server {
namespace {

constexpr int kMostCalls = 4;  // the same, while the site is not called in every step
constexpr uint32_t kMostTries = 12;
constexpr int kMostAgain = 8;
constexpr size_t kMostWords = 512;  // limit of a rank's error text
// Ranks that were past the step answer within this time.
constexpr std::chrono::milliseconds kGather{40};
// A process that has just begun declares its sites when it first calls them.
constexpr int64_t kFirstSteps = 2;
constexpr std::chrono::milliseconds kStarting{500};

// Returns true if the finding names the rank, and no other process of that rank (with another role)
// is left.
bool LastThatIsNamed(const v1::CapsuleInfo& info, uint32_t rank) {
  const auto& named = info.finding().site().ranks();
  return std::count(named.begin(), named.end(), rank) > 0 &&
         std::count_if(info.ranks().begin(), info.ranks().end(),
                       [rank](const auto& r) { return r.source().rank() == rank; }) == 1;
}

std::string_view IdOf(const std::string& error) {
  return std::string_view(error).substr(0, error.find(':'));
}

}  // namespace

// The cost of a part does not grow with the number of capsules.
void CapsuleKeeper::PartCame(uint64_t stream_id, const v1::CapsulePart& part) {
  const auto known = by_id_.find(part.capsule());
  if (known == by_id_.end()) return;
  Capsule& capsule = *known->second;
  const v1::CapsuleInfo& info = capsule.info;
  if (info.state() != v1::CapsuleInfo::STATE_TAKING || info.step() != part.step()) return;
  for (int i = 0; i < info.ranks_size(); ++i) {
    if (capsule.ranks[static_cast<size_t>(i)].stream != stream_id ||
        info.ranks(i).state() != v1::CapsuleRank::STATE_ASKED) {
      continue;
    }
    return PartCame(&capsule, i, part);
  }
}

void CapsuleKeeper::PartCame(Capsule* capsule, int index, const v1::CapsulePart& part) {
  v1::CapsuleInfo& info = capsule->info;
  capsule->ranks[static_cast<size_t>(index)].spoke = Clock::now();
  if (!part.error().empty()) {
    Refused(capsule, index, part);
  } else if (part.offset() < info.ranks(index).bytes()) {
    return;  // the rank sent this part before it got the server's request to resume
  } else if (auto s = Check(*capsule, index, part); !s.ok()) {
    QueryAgain(capsule, index, s);
  } else if (s = Finish(capsule, index, part); !s.ok()) {
    files_.Truncate(info, info.ranks(index).source());
    info.mutable_ranks(index)->set_bytes(0);
    QueryAgain(capsule, index, s);
  }
  Settle(capsule);
}

void CapsuleKeeper::Refused(Capsule* capsule, int index, const v1::CapsulePart& part) {
  const std::string_view id = IdOf(part.error());
  const bool no_site = id == "no-site";
  if (no_site && !MayYetHaveSite(*capsule, part)) {
    const uint32_t number = capsule->info.ranks(index).source().rank();
    if (LastThatIsNamed(capsule->info, number)) return FailRank(capsule, index, part.error());
    capsule->info.add_without_site(number);
    capsule->info.mutable_ranks()->DeleteSubrange(index, 1);
    capsule->ranks.erase(capsule->ranks.begin() + index);
    return;
  }
  Rank& rank = capsule->ranks[static_cast<size_t>(index)];
  const bool passed = id == "passed-step";
  const bool hopeless = passed            ? capsule->info.tries() >= kMostTries
                        : id == "no-call" ? ++rank.without_call >= kMostCalls
                                          : !no_site;
  if (hopeless) return FailRank(capsule, index, part.error());
  capsule->passed |= passed;
  capsule->newest = std::max(capsule->newest, part.newest_step());
  const auto pause = no_site ? kStarting : kGather;
  capsule->retry_at = std::min(capsule->retry_at, Clock::now() + pause);
}

bool CapsuleKeeper::MayYetHaveSite(const Capsule& capsule, const v1::CapsulePart& part) const {
  return part.newest_step() < kFirstSteps && Clock::now() < capsule.begun + options_.grace;
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
    return absl::DataLossError("the sizes of the part do not match");
  }
  if (Crc32c(data.data(), data.size()) != part.crc32c()) {
    return absl::DataLossError("the checksum of the part does not match");
  }
  return absl::OkStatus();
}

// Writes a valid part; the last one completes the rank.
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
  if (digest != part.sha256()) return absl::DataLossError("the digest does not match");
  if (!batch.ParseFromString(*whole) || batch.sources_size() != 1 ||
      !SameProcess(batch.sources(0), source)) {
    return absl::DataLossError("the received data are not evidence of this rank");
  }
  if (auto s = Redact(capsule->info, &rank, &batch, &digest); !s.ok()) return s;
  if (auto s = files_.Keep(capsule->info, source); !s.ok()) return s;
  rank.set_state(v1::CapsuleRank::STATE_HELD);
  rank.set_sha256(std::move(digest));
  Save(*capsule);
  Release(*capsule, index);
  return absl::OkStatus();
}

// Redacts the ids after the digest was checked, because the digest covers the bytes as the rank
// sent them.
absl::Status CapsuleKeeper::Redact(const v1::CapsuleInfo& info, v1::CapsuleRank* rank,
                                   v1::Batch* batch, std::string* digest) {
  if (options_.redactor == nullptr) return absl::OkStatus();
  const uint64_t changed = options_.redactor->Redact(batch);
  if (changed == 0) return absl::OkStatus();
  counters_->redacted += changed;
  const std::string bytes = batch->SerializeAsString();
  files_.Truncate(info, rank->source());
  if (auto s = files_.Append(info, rank->source(), bytes); !s.ok()) return s;
  rank->set_total(bytes.size());
  rank->set_bytes(bytes.size());
  *digest = Sha256Of(bytes);
  return absl::OkStatus();
}

void CapsuleKeeper::QueryAgain(Capsule* capsule, int index, const absl::Status& why) {
  ++counters_->capsule_errors;
  Rank& rank = capsule->ranks[static_cast<size_t>(index)];
  if (++rank.again > kMostAgain) {
    return FailRank(capsule, index, absl::StrCat("damaged: ", std::string(why.message())));
  }
  Query(capsule, index);
}

void CapsuleKeeper::FailRank(Capsule* capsule, int index, const std::string& why) {
  v1::CapsuleRank& rank = *capsule->info.mutable_ranks(index);
  rank.set_state(v1::CapsuleRank::STATE_FAILED);
  rank.set_error(why.substr(0, kMostWords));
  rank.set_bytes(0);
  files_.Truncate(capsule->info, rank.source());
  Release(*capsule, index);
}

// Finishes the capsule once no rank is awaited.
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
  LogInfo("capsule {:016x}: step {}, {} of {} ranks held", info.id(), info.step(), held,
          info.ranks_size());
  Save(*capsule);
  grown_ = true;
}

}  // namespace plumbline::server
