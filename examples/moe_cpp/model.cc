#include "model.h"

#include <algorithm>
#include <cmath>
#include <random>

namespace moe {
namespace {

size_t Index(int v) { return static_cast<size_t>(v); }

Parameter Random(int rows, int columns, double scale, std::mt19937_64& random) {
  std::normal_distribution<float> normal(0, static_cast<float>(scale));
  Parameter p;
  p.value.resize(Index(rows) * Index(columns));
  for (float& v : p.value) v = normal(random);
  p.gradient.assign(p.value.size(), 0);
  p.mean.assign(p.value.size(), 0);
  p.square.assign(p.value.size(), 0);
  return p;
}

// y[i] += sum_j w[i,j] x[j]
void AddProduct(const float* w, const float* x, int rows, int columns, float* y) {
  for (int i = 0; i < rows; ++i) {
    const float* row = w + i * columns;
    float sum = 0;
    for (int j = 0; j < columns; ++j) sum += row[j] * x[j];
    y[i] += sum;
  }
}

// The backward pass: dw[i,j] += dy[i] x[j], dx[j] += dy[i] w[i,j].
void AddProductBackward(Parameter& w, const float* x, const float* dy, int rows, int columns,
                        float* dx) {
  for (int i = 0; i < rows; ++i) {
    const float* value = w.value.data() + i * columns;
    float* gradient = w.gradient.data() + i * columns;
    for (int j = 0; j < columns; ++j) {
      gradient[j] += dy[i] * x[j];
      dx[j] += dy[i] * value[j];
    }
  }
}

}  // namespace

struct Model::Trace {
  std::vector<float> input;  // [T,D]
  Routing routing;
  std::vector<float> hidden;  // [T,k,H] after the rectifier; zeros if refused
  std::vector<float> output;  // [T,k,D] of the expert, before its score
};

Model::Model(const Shape& shape, Policy policy, uint64_t seed) : shape_(shape), policy_(policy) {
  std::mt19937_64 random(seed);
  const double dim = shape.dim, hidden = shape.hidden;
  for (int c = 0; c < kContext; ++c) {
    embedding_.push_back(Random(kVocabulary, shape.dim, 0.5, random));
  }
  for (int n = 0; n < shape.layers; ++n) {
    Layer layer;
    layer.gate = Random(shape.experts, shape.dim, 1 / std::sqrt(dim), random);
    for (int e = 0; e < shape.experts; ++e) {
      layer.up.push_back(Random(shape.hidden, shape.dim, std::sqrt(2 / dim), random));
      layer.down.push_back(Random(shape.dim, shape.hidden, 1 / std::sqrt(hidden), random));
    }
    layers_.push_back(std::move(layer));
  }
  out_ = Random(kVocabulary, shape.dim, 0.02, random);
}

void Model::Embed(const Batch& batch, std::vector<float>& h) const {
  const size_t dim = Index(shape_.dim);
  h.assign(Index(batch.rows) * dim, 0);
  for (size_t t = 0; t < Index(batch.rows); ++t) {
    for (int c = 0; c < kContext && c <= batch.position[t]; ++c) {
      const float* row = &embedding_[Index(c)].value[batch.tokens[t - Index(c)] * dim];
      for (size_t j = 0; j < dim; ++j) h[t * dim + j] += row[j];
    }
  }
}

void Model::EmbedBackward(const Batch& batch, const std::vector<float>& dh) {
  const size_t dim = Index(shape_.dim);
  for (size_t t = 0; t < Index(batch.rows); ++t) {
    for (int c = 0; c < kContext && c <= batch.position[t]; ++c) {
      float* row = &embedding_[Index(c)].gradient[batch.tokens[t - Index(c)] * dim];
      for (size_t j = 0; j < dim; ++j) row[j] += dh[t * dim + j];
    }
  }
}

void Model::Forward(Layer& layer, std::vector<float>& h, Trace& trace) const {
  const size_t dim = Index(shape_.dim), hidden = Index(shape_.hidden), k = Index(shape_.top_k);
  const size_t experts = Index(shape_.experts), tokens = h.size() / dim;
  trace.input = h;
  std::vector<float> logits(tokens * experts, 0);
  for (size_t t = 0; t < tokens; ++t) {
    AddProduct(layer.gate.value.data(), &h[t * dim], shape_.experts, shape_.dim,
               &logits[t * experts]);
  }
  trace.routing =
      Route(policy_, std::move(logits), shape_.experts, shape_.top_k, shape_.capacity_factor);
  trace.hidden.assign(tokens * k * hidden, 0);
  trace.output.assign(tokens * k * dim, 0);
  for (size_t choice = 0; choice < tokens * k; ++choice) {
    if (trace.routing.keep[choice] == 0) continue;
    const size_t t = choice / k, e = Index(trace.routing.indices[choice]);
    float* inner = &trace.hidden[choice * hidden];
    float* outer = &trace.output[choice * dim];
    AddProduct(layer.up[e].value.data(), &trace.input[t * dim], shape_.hidden, shape_.dim, inner);
    for (size_t i = 0; i < hidden; ++i) inner[i] = std::max(inner[i], 0.0f);
    AddProduct(layer.down[e].value.data(), inner, shape_.dim, shape_.hidden, outer);
    const float score = trace.routing.scores[t * experts + e];
    for (size_t j = 0; j < dim; ++j) h[t * dim + j] += score * outer[j];
  }
}

void Model::Backward(Layer& layer, const Trace& trace, std::vector<float>& dh) const {
  const size_t dim = Index(shape_.dim), hidden = Index(shape_.hidden), k = Index(shape_.top_k);
  const size_t experts = Index(shape_.experts), tokens = dh.size() / dim;
  const std::vector<float> above = dh;  // the residual path stays in dh
  std::vector<float> dscore(tokens * experts, 0);
  std::vector<float> douter(dim), dinner(hidden);
  for (size_t choice = 0; choice < tokens * k; ++choice) {
    if (trace.routing.keep[choice] == 0) continue;
    const size_t t = choice / k, e = Index(trace.routing.indices[choice]);
    const float* inner = &trace.hidden[choice * hidden];
    const float* outer = &trace.output[choice * dim];
    const float score = trace.routing.scores[t * experts + e];
    for (size_t j = 0; j < dim; ++j) {
      dscore[t * experts + e] += above[t * dim + j] * outer[j];
      douter[j] = above[t * dim + j] * score;
    }
    std::fill(dinner.begin(), dinner.end(), 0.0f);
    AddProductBackward(layer.down[e], inner, douter.data(), shape_.dim, shape_.hidden,
                       dinner.data());
    for (size_t i = 0; i < hidden; ++i) dinner[i] = inner[i] > 0 ? dinner[i] : 0;
    AddProductBackward(layer.up[e], &trace.input[t * dim], dinner.data(), shape_.hidden, shape_.dim,
                       &dh[t * dim]);
  }
  std::vector<float> dlogit(experts);
  for (size_t t = 0; t < tokens; ++t) {
    const float* p = &trace.routing.scores[t * experts];
    const float* d = &dscore[t * experts];
    float mean = 0;
    for (size_t e = 0; e < experts; ++e) mean += p[e] * d[e];
    for (size_t e = 0; e < experts; ++e) dlogit[e] = p[e] * (d[e] - mean);
    AddProductBackward(layer.gate, &trace.input[t * dim], dlogit.data(), shape_.experts, shape_.dim,
                       &dh[t * dim]);
  }
}

double Model::Loss(const Batch& batch, const std::vector<float>& h, std::vector<float>& dh) {
  const size_t dim = Index(shape_.dim), tokens = Index(batch.rows);
  dh.assign(h.size(), 0);
  double loss = 0;
  std::vector<float> p(kVocabulary);
  for (size_t t = 0; t < tokens; ++t) {
    std::fill(p.begin(), p.end(), 0.0f);
    AddProduct(out_.value.data(), &h[t * dim], kVocabulary, shape_.dim, p.data());
    const float top = *std::max_element(p.begin(), p.end());
    const float truth = p[batch.targets[t]];
    double sum = 0;
    for (float& v : p) sum += v = std::exp(v - top);
    loss += std::log(sum) + top - truth;
    for (float& v : p) v /= static_cast<float>(sum) * static_cast<float>(tokens);
    p[batch.targets[t]] -= 1.0f / static_cast<float>(tokens);
    AddProductBackward(out_, &h[t * dim], p.data(), kVocabulary, shape_.dim, &dh[t * dim]);
  }
  return loss / static_cast<double>(tokens);
}

double Model::Step(const Batch& batch, const Observe& observe) {
  for (Parameter* p : All()) std::fill(p->gradient.begin(), p->gradient.end(), 0.0f);
  std::vector<float> h, dh;
  std::vector<Trace> traces(layers_.size());
  Embed(batch, h);
  for (size_t n = 0; n < layers_.size(); ++n) {
    Forward(layers_[n], h, traces[n]);
    if (observe) observe(static_cast<int>(n), traces[n].routing);
  }
  const double loss = Loss(batch, h, dh);
  for (size_t n = layers_.size(); n-- > 0;) Backward(layers_[n], traces[n], dh);
  EmbedBackward(batch, dh);
  return loss;
}

void Model::Update(float rate) {
  constexpr float kMean = 0.9f, kSquare = 0.98f, kSmall = 1e-8f;
  ++updates_;
  const auto n = static_cast<float>(updates_);
  const float mean_scale = 1 / (1 - std::pow(kMean, n));
  const float square_scale = 1 / (1 - std::pow(kSquare, n));
  for (Parameter* p : All()) {
    for (size_t i = 0; i < p->value.size(); ++i) {
      const float g = p->gradient[i];
      p->mean[i] = kMean * p->mean[i] + (1 - kMean) * g;
      p->square[i] = kSquare * p->square[i] + (1 - kSquare) * g * g;
      p->value[i] -=
          rate * (p->mean[i] * mean_scale) / (std::sqrt(p->square[i] * square_scale) + kSmall);
    }
  }
}

std::vector<Parameter*> Model::All() {
  std::vector<Parameter*> all = {&out_};
  for (Parameter& p : embedding_) all.push_back(&p);
  for (Layer& layer : layers_) {
    all.push_back(&layer.gate);
    for (Parameter& p : layer.up) all.push_back(&p);
    for (Parameter& p : layer.down) all.push_back(&p);
  }
  return all;
}

size_t Model::parameters() const {
  size_t sum = 0;
  for (Parameter* p : const_cast<Model*>(this)->All()) sum += p->value.size();
  return sum;
}

}  // namespace moe
