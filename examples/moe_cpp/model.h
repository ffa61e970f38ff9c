// A small language model with mixture-of-experts layers, and its gradients, written by hand.
//
// Each token sees only the bytes up to itself: h = sum over c < kContext of an embedding of the
// byte c places back. Each layer adds the sum over its kept choices of score * expert(h), where an
// expert is a two-layer perceptron. The last h gives the logits of the next byte.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "routers.h"
#include "text.h"

namespace moe {

inline constexpr int kContext = 4;

// A parameter with its gradient and Adam's moments.
struct Parameter {
  std::vector<float> value, gradient, mean, square;
};

struct Layer {
  Parameter gate;               // [E,D]
  std::vector<Parameter> up;    // of each expert [H,D]
  std::vector<Parameter> down;  // of each expert [D,H]
};

struct Shape {
  int dim = 32, hidden = 64, experts = 8, layers = 2, top_k = 2;
  double capacity_factor = 1.0;
};

class Model {
 public:
  Model(const Shape& shape, Policy policy, uint64_t seed);

  // Returns the cross-entropy in nats per byte; leaves gradients in the parameters. Calls `observe`
  // with every layer's routing when it is used.
  using Observe = std::function<void(int layer, const Routing& routing)>;
  double Step(const Batch& batch, const Observe& observe);

  // Applies Adam (as in the paper) to the gradients of Step.
  void Update(float rate);

  size_t parameters() const;

 private:
  struct Trace;  // values of a layer's forward pass that its backward pass needs

  void Embed(const Batch& batch, std::vector<float>& h) const;
  void EmbedBackward(const Batch& batch, const std::vector<float>& dh);
  void Forward(Layer& layer, std::vector<float>& h, Trace& trace) const;
  void Backward(Layer& layer, const Trace& trace, std::vector<float>& dh) const;
  double Loss(const Batch& batch, const std::vector<float>& h, std::vector<float>& dh);
  std::vector<Parameter*> All();

  Shape shape_;
  Policy policy_;
  int64_t updates_ = 0;
  std::vector<Parameter> embedding_;  // for each offset back [256,D]
  std::vector<Layer> layers_;
  Parameter out_;  // [256,D]
};

}  // namespace moe
