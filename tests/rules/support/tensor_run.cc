#include "tests/rules/support/tensor_run.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <sstream>

#include "base/load.h"
#include "kernels/evidence/block_fit.h"
#include "kernels/evidence/tensor_state.h"

namespace plumbline::rules::testing {
namespace {

// One row of probabilities: a softmax whose sum is kept in another dtype, with the modifications of
// trainers.
class SoftmaxRow {
 public:
  SoftmaxRow(const TensorRunSpec& spec, Draw& draw) : spec_(spec), draw_(draw) {}

  std::vector<double> Make(int row) {
    const bool masked = row < spec_.masked_rows;
    const int length = spec_.causal ? row + 1 : spec_.columns;
    std::vector<double> p(static_cast<size_t>(spec_.columns), 0);
    if (masked) {
      p.assign(p.size() / static_cast<size_t>(spec_.shard), spec_.masked_zero ? 0.0 : NAN);
      return p;
    }
    std::vector<float> x(static_cast<size_t>(std::min(length, spec_.columns)));
    for (float& v : x) v = static_cast<float>(spec_.logit_sd * draw_.Normal());
    spec_.sigmoid ? Sigmoid(x, p) : Softmax(x, p);
    Change(p);
    return p;
  }

 private:
  static void Sigmoid(const std::vector<float>& x, std::vector<double>& p) {
    for (size_t i = 0; i < x.size(); ++i) p[i] = static_cast<double>(1 / (1 + std::exp(-x[i])));
  }

  void Softmax(const std::vector<float>& x, std::vector<double>& p) {
    const float most = *std::max_element(x.begin(), x.end());
    double sum = 0;  // of spec_.sum_dtype
    if (spec_.sink) sum = RoundToFormat(std::exp(-double{most}), spec_.sum_dtype);
    for (const float v : x)
      sum = RoundToFormat(sum + static_cast<double>(std::exp(v - most)), spec_.sum_dtype);
    const float log_sum = most + std::log(static_cast<float>(sum));
    for (size_t i = 0; i < x.size(); ++i) {
      const float e = std::exp(x[i] - most);
      p[i] = spec_.log_domain ? std::exp(x[i] - log_sum) : e / static_cast<float>(sum);
    }
  }

  void Change(std::vector<double>& p) {
    if (spec_.top_k > 0) {
      std::vector<double> sorted = p;
      std::sort(sorted.rbegin(), sorted.rend());
      const double least = sorted[static_cast<size_t>(spec_.top_k) - 1];
      double sum = 0;
      for (double& v : p) {
        if (v < least) v = 0;
        sum += v;
      }
      for (double& v : p) v = spec_.renormalise ? v / sum : v;
    }
    for (double& v : p) {
      if (spec_.dropout > 0) v = draw_.Uniform() < spec_.dropout ? 0 : v / (1 - spec_.dropout);
      v = std::max(v * spec_.factor, v > 0 ? spec_.floor : 0);
    }
    p.resize(p.size() / static_cast<size_t>(spec_.shard));
  }

  const TensorRunSpec& spec_;
  Draw& draw_;
};

std::vector<double> Positions(const TensorRunSpec& s, DType used) {
  std::vector<double> row;
  for (int i = 0; i < s.pad_left; ++i) row.push_back(1);
  const int real = s.columns - s.pad_left - s.pad_right;
  double count = s.start;
  for (int i = 0; i < real; ++i) {
    const int at = s.document > 0 ? i % s.document : i;
    count = i == 0 ? s.start : RoundToFormat(count + 1, used);
    row.push_back(s.stops ? count : (s.start + at / s.repeat) * s.step);
  }
  while (row.size() < static_cast<size_t>(s.columns)) row.push_back(row.back());
  return row;
}

class Run {
 public:
  explicit Run(const TensorRunSpec& spec) : spec_(spec) {}

  void Observe(int step, int rank, int layer, v1::Batch* batch) const {
    std::vector<double> values = Values(step, rank, layer);
    const DType used = spec_.used == DType::kUnspecified ? spec_.dtype : spec_.used;
    for (double& v : values) v = IsFloating(used) ? RoundToFormat(v, used) : v;
    Outliers(values);
    Poison(step, rank, layer, values);
    Stored stored(values, spec_.dtype);
    if (Odd(step, rank) && spec_.flip_bit >= 0) Flip(stored.bytes());
    v1::Evidence& e = *batch->add_evidence();
    e.set_source(static_cast<uint32_t>(rank));
    e.mutable_site()->set_layer("layers." + std::to_string(layer) + ".x");
    e.mutable_site()->set_op(!spec_.op.empty()    ? spec_.op
                             : spec_.role.empty() ? "tensor"
                                                  : spec_.role);
    e.set_step(step);
    e.set_sample_size(values.size());
    if (spec_.ordered) e.set_order(static_cast<uint64_t>(layer) + 1);
    Fill(stored, static_cast<int64_t>(values.size()), e);
  }

 private:
  bool Odd(int step, int rank) const { return rank == spec_.odd_rank && step >= spec_.odd_step; }

  // Ranks of copies draw the same numbers.
  uint64_t Seed(int step, int rank, int layer) const {
    const bool own = !(spec_.copies || (spec_.copies_first && step == 0)) ||
                     (Odd(step, rank) && spec_.flip_bit < 0);
    const auto part = [](int x) { return static_cast<uint64_t>(x) + 1; };
    return static_cast<uint64_t>(spec_.seed) + 1000003 * part(layer) +
           (spec_.moves ? 7919 * part(step) : 0) + (own ? 104729 * part(rank) : 0);
  }

  std::vector<double> Values(int step, int rank, int layer) const {
    Draw draw(Seed(step, rank, layer));
    const DType used = spec_.used == DType::kUnspecified ? spec_.dtype : spec_.used;
    std::vector<double> values;
    SoftmaxRow softmax(spec_, draw);
    for (int r = 0; r < spec_.rows; ++r) {
      std::vector<double> row;
      if (spec_.content == "softmax") row = softmax.Make(r);
      if (spec_.content == "positions") row = Positions(spec_, used);
      const double sd = spec_.sd * std::pow(spec_.growth, layer);
      for (int c = 0; row.size() < static_cast<size_t>(spec_.columns) && c < spec_.columns &&
                      spec_.content != "softmax";
           ++c)
        row.push_back(spec_.content == "constant" ? spec_.mean : spec_.mean + sd * Noise(draw));
      values.insert(values.end(), row.begin(), row.end());
    }
    return values;
  }

  double Noise(Draw& draw) const {
    const double z = draw.Normal();
    return spec_.content == "cubed" ? z * z * z : z;
  }

  void Outliers(std::vector<double>& values) const {
    for (size_t i = 0; spec_.outlier_every > 0 && i < values.size();
         i += static_cast<size_t>(spec_.outlier_every))
      values[i] = spec_.outlier * (values[i] < 0 ? values[i] - spec_.sd : values[i] + spec_.sd);
  }

  // Returns the scales of blocks along a row by the OCP's rule, times `recorded`.
  std::vector<float> Scales(const TensorView& view, const BlockFormat& format) const {
    std::vector<float> scales;
    const double most = format.element == "e2m1" ? 2 : format.element == "e5m2" ? 15 : 8;
    for (int64_t i = 0; spec_.recorded != 0 && i < view.elements(); i += format.columns) {
      double amax = 0;
      for (int64_t k = i; k < i + format.columns; ++k) {
        const double x = std::fabs(LoadDouble(view.data, view.dtype, k));
        amax = std::isfinite(x) ? std::max(amax, x) : amax;
      }
      scales.push_back(static_cast<float>(spec_.recorded * std::exp2(std::ilogb(amax) - most)));
    }
    return scales;
  }

  void FillBlocks(const TensorView& view, v1::TensorState* out) const {
    std::optional<DeclaredBlocks> declared;
    std::vector<float> scales;
    for (const NamedBlockFormat& named : BlockFormats()) {
      if (named.name != spec_.blocks) continue;
      scales = Scales(view, named.format);
      declared = DeclaredBlocks{named.format, scales, 0};
    }
    const absl::Status status = FillBlockFits(view, declared, out);
    if (!status.ok()) throw std::runtime_error(std::string(status.message()));
  }

  void Poison(int step, int rank, int layer, std::vector<double>& values) const {
    const double poison = spec_.poison == "nan"    ? NAN
                          : spec_.poison == "inf"  ? INFINITY
                          : spec_.poison == "ninf" ? -INFINITY
                                                   : 0;
    if (poison == 0) return;
    for (size_t i = 0; spec_.poison_every > 0 && i < values.size();
         i += static_cast<size_t>(spec_.poison_every))
      values[i] = poison;
    if (spec_.poison_every > 0) return;
    const bool first =
        step == spec_.poison_step && rank == spec_.poison_rank && layer == spec_.poison_layer;
    const bool after =
        step > spec_.poison_step ||
        (step == spec_.poison_step && rank == spec_.poison_rank && layer > spec_.poison_layer);
    if (first || (spec_.floods && after)) values[values.size() / 2] = poison;
    if (spec_.floods && after) std::fill(values.begin(), values.end(), NAN);
  }

  void Flip(std::string& bytes) const {
    const size_t bit = static_cast<size_t>(spec_.flip_element) * 8 * DTypeSize(spec_.dtype) +
                       static_cast<size_t>(spec_.flip_bit);
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << (bit % 8)));
  }

  void Fill(const Stored& stored, int64_t count, v1::Evidence& e) const {
    TensorStateOptions options;
    options.role = spec_.role;
    options.target_format = spec_.target_format;
    options.replicas = spec_.replicas;
    options.with_sample = spec_.sample;
    options.key = static_cast<uint64_t>(e.step() + 1);
    options.max_samples = static_cast<uint32_t>(spec_.max_samples);
    const TensorView view = stored.View({spec_.rows, count / spec_.rows});
    const auto status = FillTensorState(view, options, e.mutable_tensor());
    if (!status.ok()) throw std::runtime_error(std::string(status.message()));
    if (!spec_.blocks.empty()) FillBlocks(view, e.mutable_tensor());
  }

  const TensorRunSpec& spec_;
};

void AddLossScale(const TensorRunSpec& spec, v1::Batch* batch) {
  std::istringstream in(spec.loss_scale);
  double scale;
  for (int step = 0; in >> scale; ++step) {
    v1::Evidence& e = *batch->add_evidence();
    e.mutable_site()->set_op("loss_scale");
    e.set_step(step);
    e.mutable_scalar()->set_value(scale);
  }
}

void AddLoss(const TensorRunSpec& spec, v1::Batch* batch) {
  for (int step = 0; spec.loss_nan_step >= 0 && step < spec.steps; ++step) {
    for (int rank = 0; rank < (spec.loss_of_all ? spec.ranks : 1); ++rank) {
      v1::Evidence& e = *batch->add_evidence();
      e.set_source(static_cast<uint32_t>(rank));
      e.mutable_site()->set_op(spec.loss);
      e.set_step(step);
      e.mutable_scalar()->set_value(step < spec.loss_nan_step ? 2.5 : NAN);
    }
  }
}

// Adds the checksums of run.watch, equal on all ranks with the same values.
void AddChecksums(const TensorRunSpec& spec, v1::Batch* batch) {
  for (int step = 0; !spec.checksum.empty() && step < spec.steps; step += spec.checksum_every) {
    for (int rank = 0; rank < spec.ranks; ++rank) {
      const bool odd = rank == spec.odd_rank && step >= spec.odd_step;
      v1::Evidence& e = *batch->add_evidence();
      e.set_source(static_cast<uint32_t>(rank));
      e.mutable_site()->set_op(spec.checksum);
      e.set_step(step);
      e.mutable_scalar()->set_value(
          rank == spec.checksum_nan_rank ? NAN : 1e14 + 1000 * step + (odd ? 1 : 0));
    }
  }
}

}  // namespace

void Set(TensorRunSpec& s, const std::string& key, const std::string& value) {
  SetField({.whole = {{"layers", &s.layers},
                      {"ranks", &s.ranks},
                      {"steps", &s.steps},
                      {"rows", &s.rows},
                      {"columns", &s.columns},
                      {"max_samples", &s.max_samples},
                      {"look_every", &s.look_every},
                      {"loss_nan_step", &s.loss_nan_step},
                      {"checksum_every", &s.checksum_every},
                      {"checksum_nan_rank", &s.checksum_nan_rank},
                      {"seed", &s.seed},
                      {"top_k", &s.top_k},
                      {"masked_rows", &s.masked_rows},
                      {"shard", &s.shard},
                      {"document", &s.document},
                      {"pad_left", &s.pad_left},
                      {"pad_right", &s.pad_right},
                      {"repeat", &s.repeat},
                      {"odd_rank", &s.odd_rank},
                      {"odd_step", &s.odd_step},
                      {"flip_element", &s.flip_element},
                      {"flip_bit", &s.flip_bit},
                      {"poison_step", &s.poison_step},
                      {"poison_layer", &s.poison_layer},
                      {"poison_rank", &s.poison_rank},
                      {"poison_every", &s.poison_every},
                      {"outlier_every", &s.outlier_every}},
            .number = {{"sd", &s.sd},
                       {"mean", &s.mean},
                       {"growth", &s.growth},
                       {"logit_sd", &s.logit_sd},
                       {"dropout", &s.dropout},
                       {"factor", &s.factor},
                       {"floor", &s.floor},
                       {"start", &s.start},
                       {"step", &s.step},
                       {"recorded", &s.recorded},
                       {"outlier", &s.outlier}},
            .flag = {{"loss_of_all", &s.loss_of_all},
                     {"sample", &s.sample},
                     {"ordered", &s.ordered},
                     {"causal", &s.causal},
                     {"renormalise", &s.renormalise},
                     {"masked_zero", &s.masked_zero},
                     {"sink", &s.sink},
                     {"log_domain", &s.log_domain},
                     {"sigmoid", &s.sigmoid},
                     {"stops", &s.stops},
                     {"copies", &s.copies},
                     {"copies_first", &s.copies_first},
                     {"moves", &s.moves},
                     {"floods", &s.floods}},
            .text = {{"role", &s.role},
                     {"op", &s.op},
                     {"content", &s.content},
                     {"replicas", &s.replicas},
                     {"poison", &s.poison},
                     {"blocks", &s.blocks},
                     {"loss", &s.loss},
                     {"checksum", &s.checksum},
                     {"loss_scale", &s.loss_scale}},
            .dtype = {{"dtype", &s.dtype},
                      {"used", &s.used},
                      {"target_format", &s.target_format},
                      {"sum_dtype", &s.sum_dtype}}},
           key, value);
}

v1::Batch TensorRun(const TensorRunSpec& spec) {
  v1::Batch batch;
  for (int rank = 0; rank < spec.ranks; ++rank) {
    AddTrainer(rank, spec.ranks, &batch);
  }
  const Run run(spec);
  for (int step = 0; step < spec.steps; step += spec.look_every) {
    for (int rank = 0; rank < spec.ranks; ++rank) {
      for (int layer = 0; layer < spec.layers; ++layer) run.Observe(step, rank, layer, &batch);
    }
  }
  AddLossScale(spec, &batch);
  AddLoss(spec, &batch);
  AddChecksums(spec, &batch);
  return batch;
}

}  // namespace plumbline::rules::testing
