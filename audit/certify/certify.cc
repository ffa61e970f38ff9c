#include "audit/certify/certify.h"

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "audit/certify/fields.h"
#include "audit/certify/steps.h"
#include "audit/certify/tokens.h"
#include "audit/certify/weights.h"
#include "rules/bases/speed_names.h"
#include "rules/catalogue.h"

namespace plumbline::audit {
namespace {

constexpr size_t kMostProblems = 40;
constexpr char kOnlyA[] = "only in A", kOnlyB[] = "only in B";

// Returns true for series that two runs of the same work never share.
bool IsTime(const std::string& name) {
  const std::string op = name.substr(name.rfind('/') + 1);
  const rules::Pace pace = rules::NameOfWork(op).pace;
  const rules::MfuName mfu = rules::NameOfMfu(op);
  return pace != rules::Pace::kNone || mfu.mfu || mfu.speed;
}

// Compares closed steps.
class StepComparison {
 public:
  StepComparison(const CertifyOptions& options, Certificate* out) : options_(options), out_(*out) {}

  // If `one`, both steps are the same one, and its halves are compared.
  void Take(const CertifiedStep& at, const HeldStep& a, const HeldStep& b, bool one) {
    ++out_.steps;
    at_ = at;
    NoteSequences(a, &out_.a.environment);
    NoteSequences(b, &out_.b.environment);
    Sequences(a, b, one);
    Routes(a, b, one);
    if (one) {
      for (const auto& [key, item] : a.evidence) Vocabulary(key, item);
      return;
    }
    Series(a, b);
    Evidence(a, b);
    out_.tally.Gap("times", "of a clock", std::max(a.times, b.times), false);
    out_.tally.Gap("evidence", "two of one site and call", a.repeated + b.repeated, true);
  }

  // Series of both sides that lack values on a side leave the result open; others are a whole part
  // that only one side has.
  void Finish() {
    for (size_t half = 0; half < kHalves; ++half) {
      const bool open = std::any_of(pairs_.begin(), pairs_.end(), [half](const HalfPair& pair) {
        return pair.a == half || pair.b == half;
      });
      out_.tally.Gap(absl::StrCat("logprobs:", NameOfHalf(half)), "only on one side",
                     unpaired_[half], open);
    }
    out_.tally.Gap("routing", "only in A", unrouted_a_, routed_a_ && routed_b_);
    out_.tally.Gap("routing", "only in B", unrouted_b_, routed_a_ && routed_b_);
    for (const auto& [name, seen] : series_) {
      const bool open = seen.both > 0;
      const std::string kind = "series";
      out_.tally.Gap(kind, open ? "a step only in A" : "the series is only in A", seen.only_a,
                     open);
      out_.tally.Gap(kind, open ? "a step only in B" : "the series is only in B", seen.only_b,
                     open);
    }
  }

 private:
  struct Seen {
    uint64_t both = 0, only_a = 0, only_b = 0;
  };

  BitPlace PlaceOf(const CertifiedSite& site) const {
    BitPlace place;
    place.step = at_.step;
    if (at_.attempt > 0) place.attempt = at_.attempt;
    place.rank = std::get<1>(site);
    place.site = std::get<2>(site);
    return place;
  }

  void Sequences(const HeldStep& a, const HeldStep& b, bool one) {
    if (a.sequences.empty() && b.sequences.empty()) return;
    for (const HalfPair& pair : PairsOf(a, b, one)) Know(pair);
    if (!one) CountUnpaired(a, b);
    CompareSequences(a, b, {pairs_, at_, a.exact_nan && b.exact_nan}, &out_.tally);
    if (pairs_.empty() && !a.sequences.empty() && !b.sequences.empty())
      out_.tally.Gap("logprobs", "no half to compare", a.sequences.size(), true);
  }

  // Halves may begin after the first step. If a half turns out to be on both sides, the engine's is
  // no longer compared with the trainer's.
  void Know(const HalfPair& pair) {
    const auto same = [&](const HalfPair& one) { return one.a == pair.a && one.b == pair.b; };
    if (std::any_of(pairs_.begin(), pairs_.end(), same)) return;
    const bool crossed = !pairs_.empty() && pairs_[0].a != pairs_[0].b;
    if (!pairs_.empty() && crossed != (pair.a != pair.b)) {
      out_.tally.Gap("logprobs", "other halves than in earlier steps", 1, true);
      if (!crossed) return;
      pairs_.clear();
    }
    pairs_.push_back(pair);
  }

  // Counts the tokens of halves that only one side has in this step, and that are not known to be
  // on both.
  void CountUnpaired(const HeldStep& a, const HeldStep& b) {
    const auto of_a = TokensByHalf(a), of_b = TokensByHalf(b);
    for (size_t half = 0; half < kHalves; ++half) {
      const auto pairs = [half](const HalfPair& pair) { return pair.a == half || pair.b == half; };
      if ((of_a[half] > 0) == (of_b[half] > 0) || std::any_of(pairs_.begin(), pairs_.end(), pairs))
        continue;
      unpaired_[half] += of_a[half] + of_b[half];
    }
  }

  // Compares choices of the same role; if no role is on both sides, the engine's with the
  // trainer's.
  void Routes(const HeldStep& a, const HeldStep& b, bool one) {
    const auto roles = [](const HeldStep& step) {
      std::set<int> found;
      for (const auto& [key, chosen] : step.routes) found.insert(std::get<0>(key));
      return found;
    };
    const std::set<int> of_a = roles(a), of_b = roles(b);
    bool same = false;
    for (const int role : of_a) same = same || (!one && of_b.contains(role));
    uint64_t alone = 0;
    for (const auto& [key, chosen] : a.routes) {
      auto [role, layer, sequence, position] = key;
      if (one && role != v1::ROLE_ROLLOUT) continue;
      if (!same) role = role == v1::ROLE_ROLLOUT ? v1::ROLE_TRAINER : v1::ROLE_ROLLOUT;
      const auto other = b.routes.find({role, layer, sequence, position});
      if (other == b.routes.end()) {
        ++alone;
        continue;
      }
      Choices(layer, sequence, position, chosen, other->second);
    }
    const bool open = !of_a.empty() && !of_b.empty() && (!one || of_a.size() > 1);
    const size_t shared = a.routes.size() - std::min<size_t>(alone, a.routes.size());
    const uint64_t only_b = one || b.routes.size() < shared ? 0 : b.routes.size() - shared;
    routed_a_ |= !of_a.empty();
    routed_b_ |= !of_b.empty();
    if (!one && of_a.empty() != of_b.empty()) {  // Finish decides whether it is a whole part
      unrouted_a_ += alone;
      unrouted_b_ += only_b;
      return;
    }
    out_.tally.Gap("routing", "only in A", alone, open);
    out_.tally.Gap("routing", "only in B", only_b, open);
  }

  void Choices(const std::string& layer, int64_t sequence, int64_t position,
               const std::vector<int64_t>& a, const std::vector<int64_t>& b) {
    BitPlace place;
    place.step = at_.step;
    place.site = layer;
    place.sequence = absl::StrCat(sequence);
    place.position = position;
    if (a.size() != b.size())
      return out_.tally.Other("routing", place, absl::StrCat(a.size(), " choices"),
                              absl::StrCat(b.size(), " choices"));
    for (size_t i = 0; i < a.size(); ++i) {
      place.element = static_cast<int64_t>(i);
      out_.tally.Take("routing", place, {DType::kI64, static_cast<uint64_t>(a[i]), ""},
                      {DType::kI64, static_cast<uint64_t>(b[i]), ""});
    }
  }

  // Compares both sides of the rows of one record of logits.
  void Vocabulary(const std::pair<CertifiedSite, uint32_t>& key, const v1::Evidence& item) {
    if (!item.has_logits()) return out_.tally.Gap("evidence", "it has no halves", 1, false);
    BitPlace place = PlaceOf(key.first);
    for (const v1::LogitsWitness& row : item.logits().worst()) {
      place.position = static_cast<int64_t>(row.row());
      CompareTensors("vocabulary:rollout-train", place, row.rollout(), row.train(), &out_.tally);
      ++out_.vocabulary_rows;
    }
    const auto kept = static_cast<uint64_t>(item.logits().worst_size());
    const uint64_t rows = std::max(item.logits().summary().rows(), kept);
    out_.tally.Gap("vocabulary:rollout-train", "the row was not recorded", rows - kept, true);
  }

  // Values that one side lacks are judged by Finish, when it is known whether the series is on
  // both.
  void Series(const HeldStep& a, const HeldStep& b) {
    for (const auto& [site, value] : a.series) {
      if (Excluded(site)) continue;
      Seen& seen = series_[std::get<2>(site)];
      const auto other = b.series.find(site);
      if (other == b.series.end()) {
        ++seen.only_a;
        continue;
      }
      ++seen.both;
      out_.tally.Take("series", PlaceOf(site), BitValueAt(&value, DType::kF64, 0),
                      BitValueAt(&other->second, DType::kF64, 0));
    }
    for (const auto& [site, value] : b.series) {
      if (!a.series.contains(site) && !Excluded(site)) ++series_[std::get<2>(site)].only_b;
    }
  }

  // Counts the value, and returns true, if the series is a time or was left out by --ignore.
  bool Excluded(const CertifiedSite& site) {
    const std::string& name = std::get<2>(site);
    const auto [found, fresh] = excluded_.try_emplace(name, "");
    if (fresh) {
      for (const std::string& glob : options_.ignore) {
        if (rules::GlobMatch(glob, name)) found->second = "left out by --ignore " + glob;
      }
      if (found->second.empty() && IsTime(name)) found->second = "a time or a speed";
    }
    if (found->second.empty()) return false;
    out_.tally.Gap("series", found->second, 1, false);
    return true;
  }

  // Compares what was measured at one site and call on both sides, field by field. Sampling and
  // budgets differ between runs, so what one side alone measured does not count against equality.
  void Evidence(const HeldStep& a, const HeldStep& b) {
    uint64_t only_a = 0, only_b = 0;
    for (const auto& [key, item] : a.evidence) {
      const auto other = b.evidence.find(key);
      if (other == b.evidence.end()) {
        ++only_a;
        continue;
      }
      BitPlace place = PlaceOf(key.first);
      place.call = key.second;
      if (item.what_case() != other->second.what_case()) {
        out_.tally.Other("evidence", place, "another kind of evidence", "");
        continue;
      }
      if (item.has_logits())
        out_.vocabulary_rows += static_cast<uint64_t>(
            std::min(item.logits().worst_size(), other->second.logits().worst_size()));
      const auto* field = v1::Evidence::descriptor()->FindFieldByNumber(item.what_case());
      CompareFields("evidence", place, item.GetReflection()->GetMessage(item, field),
                    other->second.GetReflection()->GetMessage(other->second, field), &out_.tally,
                    &out_.a.environment, &out_.b.environment);
    }
    for (const auto& [key, item] : b.evidence) only_b += a.evidence.contains(key) ? 0 : 1;
    out_.tally.Gap("evidence", "measured only in A", only_a, false);
    out_.tally.Gap("evidence", "measured only in B", only_b, false);
  }

  const CertifyOptions& options_;
  Certificate& out_;
  CertifiedStep at_;
  std::vector<HalfPair> pairs_;
  std::array<uint64_t, kHalves> unpaired_{};
  bool routed_a_ = false, routed_b_ = false;  // a step of the side has choices
  uint64_t unrouted_a_ = 0, unrouted_b_ = 0;  // choices of steps in which the other side has none
  std::map<std::string, Seen> series_;
  std::map<std::string, std::string> excluded_;
};

absl::Status OneRun(const CertifySide& side) {
  if (side.runs().size() <= 1) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(side.path(), ": expected one run, found ",
                                                 side.runs().size(), " (", *side.runs().begin(),
                                                 ", ", *side.runs().rbegin(), ")"));
}

void Merge(const Environment& from, Environment* to) {
  for (const auto& [name, words] : from) (*to)[name].insert(words.begin(), words.end());
}

// Reads one or two sides in step, and compares what both have completed.
class Recordings {
 public:
  Recordings(const CertifyOptions& options, Certificate* out)
      : options_(options), out_(*out), comparison_(options, out) {
    sides_.push_back(std::make_unique<CertifySide>(options.a, nullptr));
    if (!options.b.empty()) sides_.push_back(std::make_unique<CertifySide>(options.b, nullptr));
    held_.resize(sides_.size());
  }

  absl::Status Run() {
    std::vector<std::vector<std::string>> stamps;
    for (const auto& side : sides_) stamps.push_back(StampsOf(side->reports()));
    v1::Batch batch;
    while (true) {
      const size_t next =
          sides_.size() > 1 &&
                  (sides_[0]->ended() ||
                   (!sides_[1]->ended() && sides_[1]->position() < sides_[0]->position()))
              ? 1
              : 0;
      if (sides_[next]->ended()) break;
      if (sides_[next]->Next(&batch)) {
        held_[next].Take(batch, sides_[next]->exact_nan(), closed_);
        if (absl::Status one = OneRun(*sides_[next]); !one.ok()) return one;
      }
      Close();
      if (Held() > options_.held_bytes)
        return absl::ResourceExhaustedError(absl::StrCat(
            "expected steps in order on both sides, found ", Held(), " bytes that wait"));
    }
    Close();
    comparison_.Finish();
    return Finish(stamps);
  }

 private:
  uint64_t Held() const {
    uint64_t bytes = 0;
    for (const HeldSteps& held : held_) bytes += held.bytes();
    return bytes;
  }

  // Compares the steps that all sides have completed.
  void Close() {
    CertifiedStep through = sides_[0]->position();
    for (const auto& side : sides_) through = std::min(through, side->position());
    while (true) {
      std::optional<CertifiedStep> first;
      for (const HeldSteps& held : held_) {
        if (!held.steps().empty() && (!first || held.steps().begin()->first < *first))
          first = held.steps().begin()->first;
      }
      if (!first || through < *first) break;
      const HeldStep a = held_[0].Release(*first);
      if (held_.size() > 1) {
        comparison_.Take(*first, a, held_[1].Release(*first), false);
      } else {
        comparison_.Take(*first, a, a, true);
      }
    }
    closed_ = std::max(closed_, through);
  }

  absl::Status Finish(const std::vector<std::vector<std::string>>& stamps) {
    for (size_t i = 0; i < sides_.size(); ++i) {
      const char* reason = i == 0 ? "A sent it after its step" : "B sent it after its step";
      out_.tally.Gap("evidence", reason, held_[i].late(), true);
      out_.tally.Gap("series", "its set was not declared", held_[i].undeclared(), true);
      CertifiedSide& to = i == 0 ? out_.a : out_.b;
      absl::StatusOr<std::vector<CertifiedFile>> files =
          HashSide(sides_[i]->path(), sides_[i]->reports(), stamps[i]);
      if (!files.ok()) return files.status();
      to.files = *std::move(files);
      Merge(sides_[i]->environment(), &to.environment);
      for (const std::string& line : sides_[i]->Problems()) {
        if (out_.problems.size() < kMostProblems) out_.problems.push_back(line);
        out_.tally.Gap("files", i == 0 ? "a problem of A" : "a problem of B", 1, true);
      }
    }
    if (sides_.size() == 1) out_.b.environment = out_.a.environment;
    return absl::OkStatus();
  }

  const CertifyOptions& options_;
  Certificate& out_;
  StepComparison comparison_;
  std::vector<std::unique_ptr<CertifySide>> sides_;
  std::vector<HeldSteps> held_;
  CertifiedStep closed_;
};

absl::Status Checkpoints(const CertifyOptions& options, Certificate* out) {
  const std::string* paths[] = {&options.a, &options.b};
  CertifiedSide* to[] = {&out->a, &out->b};
  std::unique_ptr<CheckpointSide> sides[2];
  std::vector<std::string> stamps[2];
  for (int i = 0; i < 2; ++i) {
    auto side = ReadCheckpointSide(*paths[i]);
    if (!side.ok()) return side.status();
    sides[i] = *std::move(side);
    stamps[i] = StampsOf(sides[i]->inputs.reports);
  }
  if (absl::Status compared = CompareWeights(*sides[0], *sides[1], &out->tally); !compared.ok())
    return compared;
  for (int i = 0; i < 2; ++i) {
    auto files = HashSide(*paths[i], sides[i]->inputs.reports, stamps[i]);
    if (!files.ok()) return files.status();
    to[i]->files = *std::move(files);
    to[i]->environment["ranks"].insert(absl::StrCat(sides[i]->ranks.size()));
    for (const InputReport& report : sides[i]->inputs.reports) {
      for (const Problem& problem : report.problems) {
        if (out->problems.size() < kMostProblems) out->problems.push_back(report.Line(problem));
        out->tally.Gap("files", i == 0 ? "a problem of A" : "a problem of B", 1, true);
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

const char* Certificate::Verdict() const {
  if (tally.differ() > 0) return "differs";
  return tally.open() || tally.compared() == 0 ? "incomplete" : "equal";
}

absl::StatusOr<Certificate> Certify(const CertifyOptions& options) {
  Certificate out;
  const bool weights =
      !options.b.empty() && IsCheckpointPath(options.a) && IsCheckpointPath(options.b);
  out.mode = weights ? "checkpoints" : options.b.empty() ? "halves" : "recordings";
  const absl::Status done = weights ? Checkpoints(options, &out) : Recordings(options, &out).Run();
  if (!done.ok()) return done;
  Merge(options.declared_a, &out.a.environment);
  Merge(options.declared_b, &out.b.environment);
  return out;
}

}  // namespace plumbline::audit
