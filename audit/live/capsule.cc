// plumb capsule: writes the evidence of a finding into a directory.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <thread>

#include "absl/strings/str_cat.h"
#include "audit/live/capsule_directory.h"
#include "audit/live/caught_up.h"
#include "audit/live/client.h"
#include "audit/live/live.h"
#include "audit/live/output.h"
#include "audit/render/text_util.h"

namespace plumbline::audit {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kCallSeconds = 10;
constexpr std::string_view kCaptured = "capture";  // value in a manifest
constexpr uint64_t kMostJudgedBytes = uint64_t{256} << 20;

bool Settled(const v1::CapsuleInfo& info) {
  return info.state() >= v1::CapsuleInfo::STATE_COMPLETE;
}

int HeldRanks(const v1::CapsuleInfo& info) {
  int held = 0;
  for (const auto& rank : info.ranks()) held += rank.state() == v1::CapsuleRank::STATE_HELD;
  return held;
}

class Fetch {
 public:
  explicit Fetch(const CapsuleOptions& options) : options_(options), client_(options.server) {}

  int Run() {
    v1::ListIncidentsRequest wanted;
    wanted.set_fingerprint(options_.finding);
    const auto caught_up = AwaitCaughtUp(client_, options_.server, options_.timeout_seconds);
    if (!caught_up.ok()) return LiveFailed(caught_up.status());
    const auto incidents = client_.Incidents(wanted, kCallSeconds);
    if (!incidents.ok()) return LiveFailed(incidents.status());
    if (incidents->incidents_size() != 1) {
      return LiveFailed(absl::NotFoundError(absl::StrCat(
          "expected a finding that begins with ", options_.finding, ", found ",
          incidents->incidents_size(), " (plumb query lists them with --format json)")));
    }
    finding_ = incidents->incidents(0).finding();
    auto directory = CapsuleDirectory::Create(options_.output);
    if (!directory.ok()) return LiveFailed(directory.status());
    return options_.judged ? Judged(&*directory) : Captured(&*directory);
  }

 private:
  // ---- from the ranks ----------------------------------------------------------------------

  int Captured(CapsuleDirectory* directory) {
    v1::RequestCapsuleRequest request;
    request.set_fingerprint(finding_.fingerprint());
    request.set_anew(options_.anew);
    const auto requested = client_.RequestCapsule(request, kCallSeconds);
    if (!requested.ok()) return LiveFailed(requested.status());
    if (auto s = Wait(requested->capsule()); !s.ok()) return LiveFailed(s);
    if (HeldRanks(info_) == 0) return LiveFailed(NothingHeld());
    if (auto s = Read(directory); !s.ok()) return LiveFailed(s);
    for (const v1::CapsuleRank& rank : info_.ranks()) {
      if (rank.state() == v1::CapsuleRank::STATE_HELD) continue;
      directory->AddMissing(rank.source().rank(),
                            rank.error().empty() ? "late: no answer in time" : rank.error());
    }
    return Finish(directory, kCaptured);
  }

  absl::Status NothingHeld() const {
    const std::string why = info_.error().empty()
                                ? absl::StrCat("no answer within ", options_.timeout_seconds,
                                               " s from ", info_.ranks_size(), " ranks")
                                : info_.error();
    return absl::UnavailableError(
        absl::StrCat("no rank sent a capsule: ", why,
                     "; --judged uses the evidence in the server's journal instead"));
  }

  // Waits until the server has the capsule, or until the timeout.
  absl::Status Wait(v1::CapsuleInfo info) {
    const auto until = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                          std::chrono::duration<double>(options_.timeout_seconds));
    v1::ListCapsulesRequest request;
    request.set_fingerprint(finding_.fingerprint());
    for (;;) {
      info_ = std::move(info);
      Show();
      if (Settled(info_) || Clock::now() >= until) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      const auto list = client_.Capsules(request, kCallSeconds);
      if (!list.ok()) return list.status();
      if (list->capsules_size() != 1) return absl::AbortedError("the capsule no longer exists");
      info = list->capsules(0);
    }
    if (shown_) std::fputc('\n', stderr);
    return absl::OkStatus();
  }

  void Show() {
    if (options_.quiet || !isatty(STDERR_FILENO)) return;
    shown_ = true;
    if (info_.state() == v1::CapsuleInfo::STATE_WAITING) {
      std::fputs("\rwaiting for more ranks, or for another capsule", stderr);
      return;
    }
    std::fprintf(stderr, "\r\x1b[Kstep %lld: %d of %d ranks", static_cast<long long>(info_.step()),
                 HeldRanks(info_), info_.ranks_size());
  }

  absl::Status Read(CapsuleDirectory* directory) {
    absl::Status wrong;
    std::string bytes;
    const auto take = [&](const v1::GetCapsuleResponse& message) {
      if (message.has_info()) info_ = message.info();
      if (!message.has_bytes()) return true;
      bytes += message.bytes().data();
      if (!message.bytes().last()) return true;
      v1::Batch batch;
      wrong = batch.ParseFromString(bytes)
                  ? directory->Add(batch)
                  : absl::DataLossError("the server sent a capsule that is not evidence");
      bytes.clear();
      return wrong.ok();
    };
    const auto read = client_.ReadCapsule(finding_.fingerprint(), take);
    return wrong.ok() ? read : wrong;
  }

  // ---- from the journal --------------------------------------------------------------------

  bool Wanted(const v1::Evidence& e) const {
    const v1::FindingSite& site = finding_.site();
    return e.site().layer() == site.layer() && e.site().op() == site.op() &&
           e.step() >= site.step_first() && e.step() <= site.step_last();
  }

  // Returns true if the set holds the finding's series. A series has points, not evidence.
  bool OfFinding(const v1::SeriesSet& set) const {
    const v1::FindingSite& site = finding_.site();
    return std::any_of(set.sites().begin(), set.sites().end(), [&](const v1::Site& one) {
      return one.layer() == site.layer() && one.op() == site.op();
    });
  }

  void Keep(const v1::Batch& batch) {
    for (const v1::SeriesSet& set : batch.series_sets()) series_ = series_ || OfFinding(set);
    for (const v1::Evidence& e : batch.evidence()) {
      const v1::Source& source = batch.sources(static_cast<int>(e.source()));
      if (!Wanted(e) || source.run() != finding_.site().run()) continue;
      kept_bytes_ += e.ByteSizeLong();
      if (kept_bytes_ > kMostJudgedBytes) return;
      v1::Batch& kept = judged_[{source.role(), source.rank(), source.attempt()}];
      if (kept.sources().empty()) *kept.add_sources() = source;
      v1::Evidence& item = *kept.add_evidence() = e;
      item.set_source(0);
    }
  }

  // Reads the whole run once, and keeps the evidence that belongs to the finding.
  int Judged(CapsuleDirectory* directory) {
    const auto read =
        client_.ReadRun(finding_.site().run(), [this](const v1::ReadRunResponse& message) {
          v1::Batch batch;
          if (message.item().has_batch() && batch.ParseFromString(message.item().batch())) {
            Keep(batch);
          }
          return kept_bytes_ <= kMostJudgedBytes;
        });
    if (!read.ok()) return LiveFailed(read);
    if (judged_.empty() && series_) {
      return LiveFailed(absl::FailedPreconditionError(
          absl::StrCat("the finding was judged from all points of a series, which a capsule does "
                       "not contain; plumb audit --server ",
                       ShellWord(options_.server), " --run ", ShellWord(finding_.site().run()),
                       " --rules ", finding_.rule(), " judges it again")));
    }
    if (judged_.empty()) {
      return LiveFailed(absl::NotFoundError(
          "the journal no longer contains evidence of the finding's site and steps"));
    }
    for (auto& [process, batch] : judged_) {
      if (auto s = directory->AddJudged(batch); !s.ok()) return LiveFailed(s);
    }
    if (kept_bytes_ > kMostJudgedBytes) {
      directory->AddMissing(0, absl::StrCat("bound: only the first ", kMostJudgedBytes, " bytes"));
    }
    return Finish(directory, "journal");
  }

  // Returns a note that one call may pass although the finding is right.
  std::string LessThanTheFinding() const {
    const v1::FindingSite& site = finding_.site();
    return absl::StrCat("It is one call of step ", info_.step(), ", the finding is of ",
                        site.step_last() > site.step_first()
                            ? absl::StrCat("steps ", site.step_first(), " to ", site.step_last())
                            : absl::StrCat("step ", site.step_first()),
                        ": one call proves less. --judged fetches the evidence that the server "
                        "judged, if it still has it.\n");
  }

  // ---- the files that were written, and the next command -------------------------------------

  int Finish(CapsuleDirectory* directory, std::string_view origin) {
    if (auto s = directory->Finish(finding_, std::string(origin), info_); !s.ok())
      return LiveFailed(s);
    std::string text =
        absl::StrCat(options_.output, ": ", Plural(directory->files(), "file"), ", ",
                     directory->bytes(), " bytes, of ", Printable(finding_.rule()), " at ",
                     Printable(finding_.site().layer()), "/", Printable(finding_.site().op()));
    if (info_.omitted_ranks() > 0) {
      absl::StrAppend(&text, "; ", info_.omitted_ranks(), " more ranks were not queried");
    }
    absl::StrAppend(&text, "\nplumb audit ", ShellWord(options_.output), " judges it again\n");
    if (origin == kCaptured) absl::StrAppend(&text, LessThanTheFinding());
    if (LivePrint(text) != 0) return kLiveFailed;
    if (directory->missing() == 0) return 0;
    return LiveFailed(absl::DataLossError(absl::StrCat(
        directory->missing(), " ranks are missing: see ", options_.output, "/manifest.json")));
  }

  const CapsuleOptions& options_;
  Client client_;
  v1::Finding finding_;
  v1::CapsuleInfo info_;
  bool shown_ = false;
  std::map<std::tuple<int, uint32_t, uint32_t>, v1::Batch> judged_;
  uint64_t kept_bytes_ = 0;
  bool series_ = false;  // true if the finding's site is a series
};

}  // namespace

int RunCapsule(const CapsuleOptions& options) { return Fetch(options).Run(); }

}  // namespace plumbline::audit
