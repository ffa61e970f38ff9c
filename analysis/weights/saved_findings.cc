#include "analysis/weights/saved_findings.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace plumbline::analysis {
namespace {

std::vector<uint32_t> Only(uint32_t rank) { return {rank}; }

// The site of a finding about the whole file of a rank.
std::string PlaceOfRank(uint32_t rank) { return absl::StrCat("rank ", rank); }

std::string Hex(const Digest& digest) {
  return absl::StrFormat("%016x%016x", digest.high, digest.low);
}

constexpr char kFromEarlier[] =
    "Do not resume from this checkpoint. Find what wrote the file (a copy that failed, a cache, a "
    "name without the step), and save again.";

}  // namespace

v1::Verdict ContentFound(int64_t step, double content, const std::string& file, uint32_t rank) {
  return FindingBuilder(v1::LEVEL_WARNING, v1::STRENGTH_PROVED)
      .Title("the content of a checkpoint's file states another step")
      .Explain(absl::StrFormat(
          "%s of step %d states step %.0f inside. In the checkpoints before and after it, the "
          "file's content states the step of its folder.",
          file, step, content))
      .Cause("earlier-file", 0.9)
      .Measured("step that the content states", content, "step")
      .Threshold(static_cast<double>(step), "step of the folder or file name")
      .Fix(kFromEarlier)
      .Samples(3)
      .Witness("file", file)
      .At(PlaceOfRank(rank), "content.step", step, step, Only(rank))
      .Take();
}

v1::Verdict ReturnFound(ReturnKind kind, int64_t step, int64_t back,
                        const std::vector<const SavedPair*>& tensors, uint32_t rank) {
  const SavedPair& first = *tensors[0];
  const bool whole = kind == ReturnKind::kWhole;
  const auto count = static_cast<double>(tensors.size());
  const char* rest = kind == ReturnKind::kPart ? "Other weights of this checkpoint have new values."
                     : whole ? "No weight of this checkpoint is new: a trainer that restores its "
                               "best weights writes this, as does a copy under another name."
                             : "The content of the file states an earlier step, too.";
  return FindingBuilder(whole ? v1::LEVEL_NOTE : v1::LEVEL_WARNING, v1::STRENGTH_PROVED)
      .Title(whole ? "a checkpoint has the weights of an earlier step"
                   : "tensors of a checkpoint have the bits of an earlier step")
      .Explain(absl::StrFormat(
          "%d tensors (the first: %s/%s, digest %s) have the bits of step %d in step %d, and had "
          "other bits in between. %s",
          tensors.size(), first.layer, first.op, Hex(first.look->digest), back, step, rest))
      .Cause(whole ? "restored" : "earlier-bits", whole ? 0.5 : 0.9)
      .Measured("tensors with the bits of an earlier step", count, "tensors")
      .Threshold(1, "a tensor that is trained does not return to 128 equal bits of digest")
      .Fix(whole ? "If the best weights were restored on purpose, do nothing." : kFromEarlier)
      .Samples(tensors.size())
      .Witness("earlier_step", static_cast<double>(back))
      .Witness("digest", Hex(first.look->digest))
      .Witness("tensors", NamesOf(tensors))
      .At(first.layer, first.op, back, step, Only(rank))
      .Take();
}

v1::Verdict StandstillFound(int64_t step, int64_t before, uint32_t rank) {
  return FindingBuilder(v1::LEVEL_WARNING, v1::STRENGTH_PROVED)
      .Title("a checkpoint's file has the bits of the checkpoint before")
      .Explain(absl::StrFormat(
          "All tensors of rank %d have in step %d the bits of step %d. They changed before that, "
          "and the training went on.",
          rank, step, before))
      .Cause("earlier-file", 0.9)
      .Measured("checkpoints with the same bits", 2, "checkpoints")
      .Threshold(1, "weights that are trained differ in each checkpoint")
      .Fix(kFromEarlier)
      .Samples(2)
      .Witness("earlier_step", static_cast<double>(before))
      .At(PlaceOfRank(rank), "weight", before, step, Only(rank))
      .Take();
}

v1::Verdict CopyFound(const CopiedRank& copied, uint32_t rank, bool parted) {
  return FindingBuilder(parted ? v1::LEVEL_NOTE : v1::LEVEL_WARNING, v1::STRENGTH_PROVED)
      .Title("the shards of a rank are those of another rank")
      .Explain(absl::StrFormat(
          "In step %d all %d matrices of rank %d have the bits of those of rank %d. In step %d "
          "each of them differed, and their values were unrelated.%s",
          copied.step, copied.tensors, rank, copied.other, copied.before,
          parted ? " In the next checkpoint they differ again, and go on from these values." : ""))
      .Cause("copied-rank", parted ? 0.3 : 0.9)
      .Measured("matrices with the bits of another rank", static_cast<double>(copied.tensors),
                "matrices")
      .Threshold(2, "shards of one tensor have different values")
      .Fix(parted
               ? "If ranks are members of a population that take over the best one's weights, do "
                 "nothing."
               : "Do not resume from this checkpoint. Check the file names of the ranks and the "
                 "copy that wrote them.")
      .Samples(copied.tensors)
      .Witness("other_rank", static_cast<double>(copied.other))
      .At(PlaceOfRank(rank), "weight", copied.before, copied.step, Only(rank))
      .Take();
}

v1::Verdict AdapterFound(bool zero, int64_t first, int64_t step,
                         const std::vector<const SavedPair*>& tensors, uint32_t rank) {
  return FindingBuilder(v1::LEVEL_WARNING, v1::STRENGTH_PROVED)
      .Title(zero ? "the adapters have no effect: every second factor is zero"
                  : "the adapters keep their bits")
      .Explain(absl::StrFormat(
          "%d tensors (the first: %s) %s in each checkpoint from step %d to step %d%s.",
          tensors.size(), tensors[0]->layer, zero ? "are zero" : "have the same bits", first, step,
          zero ? ", so that the model is its base" : ""))
      .Cause("adapters-not-trained", 0.8)
      .Measured("tensors", static_cast<double>(tensors.size()), "tensors")
      .Threshold(3, "consecutive checkpoints")
      .Fix(
          "Check that the optimizer holds the adapters (create it after get_peft_model), that they "
          "require gradients, and that the saved adapter is the trained one.")
      .Samples(3)
      .Witness("tensors", NamesOf(tensors))
      .At(tensors[0]->layer, "weight", first, step, Only(rank))
      .Take();
}

v1::Verdict EmptyFound(int64_t step, const std::vector<const SavedPair*>& tensors, size_t weights,
                       uint32_t rank) {
  return FindingBuilder(v1::LEVEL_WARNING, v1::STRENGTH_PROVED)
      .Title("weights of a checkpoint have no elements")
      .Explain(absl::StrFormat("%d of %d weights of step %d have 0 elements (the first: %s).",
                               tensors.size(), weights, step, tensors[0]->layer))
      .Cause("empty-weights", 0.9)
      .Measured("weights without elements", static_cast<double>(tensors.size()), "weights")
      .Threshold(1, "half of the weights, or weights that had elements before")
      .Fix(
          "Under ZeRO-3 each rank holds shards, and state_dict() of the module is empty: save with "
          "engine.save_checkpoint, or set stage3_gather_16bit_weights_on_model_save.")
      .Samples(weights)
      .Witness("tensors", NamesOf(tensors))
      .At(tensors[0]->layer, "weight", step, step, Only(rank))
      .Take();
}

v1::Verdict MomentsFound(int64_t step, int64_t before, const SavedPair& tensor, uint32_t rank) {
  return FindingBuilder(v1::LEVEL_WARNING, v1::STRENGTH_PROVED)
      .Title("a weight changes although its moments are zero")
      .Explain(absl::StrFormat(
          "%s: all elements of exp_avg and exp_avg_sq are 0 in three consecutive checkpoints up to "
          "step %d, but the weight changes, and not by decay alone.",
          tensor.layer, step))
      .Cause("other-state", 0.8)
      .Measured("elements of the second moment that are not zero", 0, "elements")
      .Threshold(1, "a gradient that moves the weight leaves a second moment")
      .Fix(
          "The saved state is not that of the optimizer that trains. Save the optimizer that "
          "steps, "
          "after it is wrapped and loaded.")
      .Samples(3)
      .At(tensor.layer, "weight", before, step, Only(rank))
      .Take();
}

namespace {

struct ReplacementWords {
  const char* title;
  const char* cause;
  const char* sentence;
};

ReplacementWords WordsOf(Replacement how) {
  switch (how) {
    case Replacement::kZero:
      return {"a weight became zero between two checkpoints", "zeroed",
              "all of its elements are 0"};
    case Replacement::kTransposed:
      return {"a weight was transposed between two checkpoints", "transposed",
              "it is the transpose of its earlier values"};
    case Replacement::kSwapped:
      return {"two weights were swapped between two checkpoints", "swapped",
              "it and another weight have each other's values"};
    case Replacement::kOther:
      return {"a weight has the values of another weight", "other-weight",
              "it has the values of another weight"};
    case Replacement::kNegated:
      return {"a weight was negated between two checkpoints", "negated", "its sign is reversed"};
    case Replacement::kDrawnAnew:
      break;
  }
  return {"a weight was replaced between two checkpoints", "initialised-anew",
          "its values are unrelated to the earlier ones, as after a new initialisation"};
}

}  // namespace

v1::Verdict ReplacedFound(Replacement how, int64_t before, int64_t step, const SavedPair& tensor,
                          double correlation, const SavedPair* other, uint32_t rank,
                          bool trained_on) {
  const ReplacementWords words = WordsOf(how);
  const bool exact = how == Replacement::kZero;
  FindingBuilder found(exact || trained_on ? v1::LEVEL_WARNING : v1::LEVEL_NOTE,
                       exact ? v1::STRENGTH_PROVED : v1::STRENGTH_HEURISTIC);
  found.Title(words.title)
      .Explain(absl::StrFormat(
          "%s: %s in step %d%s (from step %d on; correlation %.2f over %d sampled elements). At "
          "least three other weights of the run changed only a little. %s",
          tensor.layer, words.sentence, step, other ? absl::StrCat(": ", other->layer) : "", before,
          correlation, tensor.look->values.size(),
          trained_on ? "Its second moment was not reset."
                     : "Whether the optimizer's state of it was reset is not known."))
      .Cause(words.cause, 0.8)
      .Measured("correlation", correlation)
      .Threshold(how == Replacement::kDrawnAnew ? 0.2 : 0.8,
                 "customary: weights that are trained on stay above 0.8")
      .Fix(
          "Compare the two checkpoints (plumb diff), and check what happened between them: a "
          "resume "
          "with strict=False, a renamed or reshaped tensor, a conversion. Continue from the "
          "earlier "
          "one.")
      .Samples(tensor.look->values.size())
      .At(tensor.layer, "weight", before, step, Only(rank));
  if (other != nullptr) found.Witness("other", other->layer);
  return found.Take();
}

v1::Verdict GrowthFound(int64_t step, const SavedPair& tensor, double rate, uint32_t rank) {
  const GainGrowth& growth = tensor.past->growth;
  double total = 0;
  for (const double by : growth.grown) total += by;
  return FindingBuilder(v1::LEVEL_WARNING, v1::STRENGTH_HEURISTIC)
      .Title("a gain grows by one factor from checkpoint to checkpoint")
      .Explain(absl::StrFormat(
          "%s: the mean magnitude grew in each of %d checkpoints up to step %d, by %.2f times in "
          "all, at an even rate of exp(%.3g) per step. Most other gains stay.",
          tensor.layer, growth.grown.size(), step, std::exp(total), rate))
      .Cause("exponential-growth", 0.7)
      .Measured("growth per checkpoint", std::exp(total / static_cast<double>(growth.grown.size())))
      .Threshold(1.05, "customary: six checkpoints in a row, at one rate")
      .Fix(
          "Check what feeds back on this gain: a missing residual scale, a negative weight decay, "
          "a "
          "rate that is too large for it.")
      .Samples(growth.grown.size())
      .At(tensor.layer, "weight", step - std::llround(total / rate), step, Only(rank))
      .Take();
}

}  // namespace plumbline::analysis
