#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "analysis/frame/frame.h"
#include "analysis/replicas/replicas.h"
#include "analysis/weights/weights.h"
#include "rules/catalogue.h"

namespace plumbline::rules {
namespace {

constexpr char kPage[] = R"page(
# health/tied-weights

Two weights that shared one tensor (an embedding and the output head) are two tensors now.

**Why.** A model of 124 million parameters whose embedding of 50,257 by 768 is tied has 39 million fewer than it would have without. If loading
or wrapping makes two tensors of them, nothing fails: the loss continues, each of the two gets half of the gradient,
and an export with the tied configuration keeps one and loses the training of the other.

**Bad.** `transformer.wte.weight and lm_head.weight were equal in 3 checkpoints (steps 1000 to 3000) and differ in step 4000`

**Good.** Equal to the end; or apart from the start; or equal in one content alone (an initialisation, an upcycled model).

**How to fix it.**
- transformers: `model.tie_weights()` after loading, resizing (`resize_token_embeddings`) or wrapping;
  `tie_word_embeddings=True` in the configuration.
- PyTorch: `model.head.weight = model.embed.weight` after everything that replaces parameters (`load_state_dict(assign=True)`, `to_empty`,
  `.half()` on a copy, FSDP of both modules apart: wrap them in one unit).
- Continue from the last checkpoint in which they were equal. Untied on purpose: a suppression with its reason.

**What it checks.** Weights of one shape in checkpoints (or as a probe observes them), of which one is named as an embedding of words (`embed`, `wte`,
`word_embeddings`) and the other as a head (`lm_head`, `head`, `output_layer`, `output`). They count as tied when they were equal in two checkpoints
after step 0 *with different contents*: what is trained apart never meets twice. Pairs that are declared (option `pairs`; or `"tie_word_embeddings": true` in the
`config.json` of a checkpoint with one embedding and one head of its shape), and weights that share one storage in a file of PyTorch, whatever their names, count from the first checkpoint on. A finding is
the first checkpoint in which their digests differ.

**Strength.** `proved`: the digests are of all bits, and equal contents that changed together were one tensor or kept as one.

**Inconclusive when** they are equal in one content alone so far, values are NaN or infinite, or a declared pair is not there.

**What it cannot see.** Ties of other names, unless declared or of one storage (safetensors keep a tied weight once,
or twice); a tie that ended before the second checkpoint; transposed ones.

**Cost.** The digests are there; some 100 bytes a pair.

**Sources.** Press and Wolf, "Using the Output Embedding to Improve Language Models", 2017.
)page";

constexpr OptionInfo kOptions[] = {
    {.name = "pairs",
     .type = OptionInfo::Type::kText,
     .unit = "names, a.weight=b.weight",
     .default_value = "",
     .reason = "embedding and head are recognised by name; other pairs are listed here"},
};

constexpr RuleInfo kInfo = {
    "health/tied-weights", "tied weights differ", v1::LEVEL_WARNING, "0.1.0", kPage, kOptions};

constexpr std::string_view kStorage = "storage";  // where a checkpoint stores a weight
constexpr std::string_view kByConfig =
    "tied.declared";  // by the configuration next to a checkpoint
constexpr size_t kMostShared = 4096;
constexpr size_t kMostOfAKind = 8;  // limit for embeddings and for heads, per step and rank

// A weight in the current step.
struct TiedLook {
  std::string name;
  uint32_t rank = 0;
  std::vector<int64_t> shape;
  Digest digest;
  uint64_t count = 0;
  bool finite = false;
  bool varied = false;
};

// Two weights on one rank.
struct TiedPair {
  bool declared = false;
  bool equal_before = false;
  Digest digest;          // their newest common content
  uint64_t contents = 0;  // number of different contents after step 0
  uint64_t equal = 0;     // steps with equal contents
  int64_t equal_first = 0;
  int64_t equal_last = 0;
  uint64_t poisoned = 0;
  int64_t step_first = 0;
  int64_t step_last = 0;
  bool reported = false;
  void Persist(Archive& a) {
    a(declared, equal_before, digest, contents, equal, equal_first, equal_last, poisoned,
      step_first, step_last, reported);
  }
  bool tied() const { return contents >= 2 || (declared && equal > 0); }
};

class TiedWeights : public ScalarRule {
 public:
  explicit TiedWeights(const Options& options) {
    const std::vector<std::string> pairs =
        absl::StrSplit(options.Text("pairs"), absl::ByAnyChar(" ,\n"), absl::SkipEmpty());
    for (const std::string& pair : pairs)
      declared_.push_back(absl::StrSplit(pair, absl::MaxSplits('=', 1)));
  }

  bool ReadsScalar(const v1::Site& site) const override {
    return site.op() == kStorage || site.op() == kByConfig;
  }

  void Judge(const SiteStep& step, VerdictSink& /*out*/) override {
    const std::string& name = step.site.layer();
    for (const Item& item : step.items) {
      if (item.evidence->has_scalar() && step.site.op() == kByConfig)
        open_[item.source->rank()].by_config = true;
      // By the order of sites' names this precedes the weight itself.
      if (item.evidence->has_scalar() && step.site.op() == kStorage) {
        const uint32_t rank = item.source->rank();
        std::vector<std::string>& names = open_[rank].storages[item.evidence->scalar().value()];
        if (names.size() < kMostOfAKind) names.push_back(name);
        if (sharing_.size() < 2 * kMostShared) sharing_.insert({rank, name});
      }
      if (!item.evidence->has_tensor() || !item.evidence->tensor().has_summary()) continue;
      if (item.evidence->tensor().role() != "weight") continue;
      const uint32_t rank = item.source->rank();
      Open& open = open_[rank];
      if (sharing_.contains({rank, name})) open.sharing[name] = Look(name, item);
      if (IsWordEmbedding(name)) Keep(name, item, &open.embeddings);
      if (IsWordHead(name)) Keep(name, item, &open.heads);
      for (size_t i = 0; i < declared_.size(); ++i) {
        if (declared_[i].first == name) open.declared[{i, false}] = Look(name, item);
        if (declared_[i].second == name) open.declared[{i, true}] = Look(name, item);
      }
    }
  }

  bool judges_unseen_steps() const override { return false; }
  void JudgeStep(const StepEnd& step, VerdictSink& out) override {
    for (const auto& [rank, open] : open_) {
      TakeShared(step, rank, open, out);
      const bool by_config = open.by_config && open.PairsOfOneShape() == 1;
      for (const TiedLook& a : open.embeddings) {
        for (const TiedLook& b : open.heads) {
          if (a.name != b.name && !shared_.contains({rank, a.name, b.name}))
            Take(step, a, b, by_config, out);
        }
      }
      for (size_t i = 0; i < declared_.size(); ++i) {
        const auto a = open.declared.find({i, false}), b = open.declared.find({i, true});
        if (a != open.declared.end() && b != open.declared.end())
          Take(step, a->second, b->second, true, out);
      }
    }
    open_.clear();
  }

  void JudgeRun(const RunSummary& run, VerdictSink& out) override {
    for (const auto& [key, pair] : pairs_) {
      const auto& [role, rank, a, b] = key;
      if (pair.reported || pair.equal + pair.poisoned == 0) continue;
      v1::Verdict verdict =
          pair.tied() && pair.equal_last == pair.step_last
              ? Pass("the two weights are equal in all observations")
          : pair.equal == 0 || (pair.poisoned > 0 && pair.equal_last != pair.step_last)
              ? Inconclusive("poisoned: NaN or infinite values")
              : Inconclusive(
                    "one-content: the weights were equal with one set of values only; an "
                    "initialisation can cause this");
      Report(std::move(verdict), a, b, rank, pair.equal > 0 ? pair.equal_first : pair.step_first,
             pair.step_last, out);
    }
    for (const auto& [a, b] : declared_) {
      if (Seen(a, b)) continue;
      Report(Inconclusive("not-there: a weight of a declared pair was not observed"), a, b, 0,
             run.step_first, run.step_last, out);
    }
  }

  // open_ is empty between steps. declared_ comes from an option, so it is not stored.
  void Persist(Archive& archive) override {
    const uint32_t version = archive.Version(2, 1);
    archive(pairs_);
    if (version >= 2) archive(shared_, sharing_);
  }

 private:
  struct Open {
    std::vector<TiedLook> embeddings, heads;
    // Key: index of the pair, and true for its second weight.
    std::map<std::pair<size_t, bool>, TiedLook> declared;
    std::map<double, std::vector<std::string>> storages;  // storage -> names
    std::map<std::string, TiedLook> sharing;  // weights that share a storage, now or before
    bool by_config = false;                   // the configuration ties the embedding and the head

    size_t PairsOfOneShape() const {
      size_t pairs = 0;
      for (const TiedLook& a : embeddings) {
        for (const TiedLook& b : heads) pairs += a.name != b.name && a.shape == b.shape ? 1 : 0;
      }
      return pairs;
    }
  };

  // Weights in one storage are one parameter: the first one is paired with each other one.
  void TakeShared(const StepEnd& step, uint32_t rank, const Open& open, VerdictSink& out) {
    for (const auto& [storage, names] : open.storages) {
      for (size_t i = 1; i < names.size() && shared_.size() < kMostShared; ++i)
        shared_.insert({rank, names[0], names[i]});
    }
    for (const auto& [of, one, other] : shared_) {
      if (of != rank) continue;
      const auto a = open.sharing.find(one), b = open.sharing.find(other);
      if (a == open.sharing.end() || b == open.sharing.end()) continue;
      const auto key = std::tuple(step.role, rank, one, other);
      const bool before = pairs_.contains(key) && pairs_[key].equal > 0;
      // A pair that was never equal (NaN) is not reported.
      Take(step, a->second, b->second, before || a->second.digest == b->second.digest, out);
    }
  }

  static TiedLook Look(const std::string& name, const Item& item) {
    const v1::TensorState& state = item.evidence->tensor();
    const v1::TensorSummary& s = state.summary();
    TiedLook look;
    look.name = name;
    look.rank = item.source->rank();
    look.shape.assign(state.shape().begin(), state.shape().end());
    look.digest = {s.digest_low(), s.digest_high()};
    look.count = s.count();
    look.finite = s.nan() + s.pos_inf() + s.neg_inf() == 0;
    look.varied = s.min() < s.max();
    return look;
  }

  static void Keep(const std::string& name, const Item& item, std::vector<TiedLook>* looks) {
    const bool again = !looks->empty() && looks->back().name == name;
    if (again) looks->back() = Look(name, item);  // if there are several calls, keeps the last one
    if (!again && looks->size() < kMostOfAKind) looks->push_back(Look(name, item));
  }

  void Take(const StepEnd& step, const TiedLook& a, const TiedLook& b, bool declared,
            VerdictSink& out) {
    if (a.shape != b.shape || a.count != b.count || a.count == 0) return;
    const auto [at, is_new] = pairs_.try_emplace({step.role, a.rank, a.name, b.name});
    TiedPair& pair = at->second;
    if (is_new) pair.step_first = step.step;
    pair.declared |= declared;
    pair.step_last = std::max(pair.step_last, step.step);
    if (!a.finite || !b.finite) {
      ++pair.poisoned;
      return;
    }
    if (a.digest == b.digest) {
      if (!a.varied) return;
      const bool other = !pair.equal_before || pair.digest != a.digest;
      if (step.step > 0 && other) ++pair.contents;
      if (pair.equal++ == 0) pair.equal_first = step.step;
      pair.equal_before = true;
      pair.equal_last = step.step;
      pair.digest = a.digest;
      return;
    }
    if (pair.tied() && !pair.reported) {
      out.Add(Found(step, a, b, pair));
      pair.reported = true;
    } else if (!pair.tied()) {
      pair = {};  // they were only initialised with the same values
      pair.declared = declared;
      pair.step_first = pair.step_last = step.step;
      if (declared) {
        out.Add(Found(step, a, b, pair));
        pair.reported = true;
      }
    }
  }

  static v1::Verdict Found(const StepEnd& step, const TiedLook& a, const TiedLook& b,
                           const TiedPair& pair) {
    FindingBuilder found(v1::LEVEL_WARNING, v1::STRENGTH_PROVED);
    const std::string before =
        pair.equal == 0
            ? std::string("are declared tied")
            : absl::StrFormat("were equal in %d observed step%s (%d to %d)", pair.equal,
                              pair.equal == 1 ? "" : "s", pair.equal_first, pair.equal_last);
    const auto hex = [](const Digest& d) { return absl::StrFormat("%016x%016x", d.high, d.low); };
    found.Title(kInfo.title)
        .Explain(absl::StrFormat("%s and %s %s and differ in step %d (digests %s and %s, %d "
                                 "elements each).",
                                 a.name, b.name, before, step.step, hex(a.digest), hex(b.digest),
                                 a.count))
        .Cause("untied", 0.9)
        .Measured("sets of values that both had", static_cast<double>(pair.contents), "contents")
        .Threshold(2, "two equal sets of values are not an accident")
        .Fix(
            "Continue from the last checkpoint in which they were equal. Tie them again after "
            "loading, resizing and wrapping (model.tie_weights()).")
        .Samples(pair.equal + 1)
        .Witness("one", a.name)
        .Witness("other", b.name)
        .Witness("digest_of_one", hex(a.digest))
        .Witness("digest_of_other", hex(b.digest))
        .At(b.name, "weight", pair.equal == 0 ? step.step : pair.equal_last, step.step,
            std::vector<uint32_t>{a.rank});
    Put(*found.verdict().mutable_details(), "tied_to", a.name);
    return found.Take();
  }

  static void Report(v1::Verdict verdict, const std::string& a, const std::string& b, uint32_t rank,
                     int64_t first, int64_t last, VerdictSink& out) {
    Put(*verdict.mutable_details(), "tied_to", a);
    SetPlace(verdict, b, "weight", first, last, std::vector<uint32_t>{rank});
    out.Add(std::move(verdict));
  }

  bool Seen(const std::string& a, const std::string& b) const {
    return std::any_of(pairs_.begin(), pairs_.end(), [&](const auto& entry) {
      return std::get<2>(entry.first) == a && std::get<3>(entry.first) == b;
    });
  }

  std::vector<std::pair<std::string, std::string>> declared_;
  std::map<uint32_t, Open> open_;  // by rank, of this step
  std::map<std::tuple<v1::Role, uint32_t, std::string, std::string>, TiedPair> pairs_;
  // Rank, then the two names in order.
  std::set<std::tuple<uint32_t, std::string, std::string>> shared_;
  std::set<std::pair<uint32_t, std::string>> sharing_;
};

}  // namespace

CatalogueEntry tied_weights() {
  return {&kInfo, [](const Options& options) -> std::unique_ptr<Rule> {
            return std::make_unique<TiedWeights>(options);
          }};
}

}  // namespace plumbline::rules
