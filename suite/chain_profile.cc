#include "suite/chain_profile.h"

#include <algorithm>
#include <numeric>

#include "techniques/registry.h"

namespace memfloor {
namespace {

// The total alive, followed through a ledger's log.
class Follower {
 public:
  explicit Follower(const EventLog& log) : log_(log) {}
  std::int64_t live() const { return live_; }
  /// The highest total since the last call.
  std::int64_t advance() {
    std::int64_t highest = live_;
    for (; next_ < log_.size(); ++next_) {
      const LedgerEvent& event = log_[next_];
      if (event.kind == LedgerEvent::Kind::allocate) {
        if (bytes_.size() <= event.id) bytes_.resize(event.id + 1);
        live_ += bytes_[event.id] = event.bytes;
        highest = std::max(highest, live_);
      } else if (event.kind == LedgerEvent::Kind::free) {
        live_ -= bytes_[event.id];
      }
    }
    return highest;
  }

 private:
  const EventLog& log_;
  std::size_t next_ = 0;
  std::int64_t live_ = 0;
  std::vector<std::int64_t> bytes_;  // by id
};

struct Mark {
  enum class At { block_begins, block_ended, backward_begins, backward_ended } at;
  std::size_t block;
  Pass pass;
  std::int64_t live, highest;             // now; since the mark before
  std::int64_t data = 0, statistics = 0;  // bytes of the values there
  MultiplyAdds work;
};

// A chain with a mark before and after every block, and what the marks saw.
class MarkedChain {
 public:
  MarkedChain(const Chain& chain, const EventLog& log) : follower_(log) {
    for (const Unit& unit : chain) {
      if (blocks_.empty() || ended_) begin_block(blocks_.size());
      chain_.push_back(unit);
      if ((ended_ = unit.block_border)) end_block();
    }
    MEMFLOOR_CHECK(ended_, "a chain ends with a block");
  }
  MarkedChain(const MarkedChain&) = delete;
  MarkedChain& operator=(const MarkedChain&) = delete;

  const Chain& chain() const { return chain_; }
  std::size_t size() const { return blocks_.size(); }
  /// With their marks.
  UnitRange blocks(std::size_t begin, std::size_t end) const {
    return {blocks_[begin].begin, blocks_[end - 1].end};
  }
  std::size_t units(std::size_t block) const { return blocks_[block].size() - 2; }
  std::vector<Mark> take_marks() { return std::exchange(marks_, {}); }

 private:
  void begin_block(std::size_t block) {
    blocks_.push_back({chain_.size(), 0});
    chain_.push_back({"mark", false, [this, block](Context& context, Values values) {
                        // The block's first op would ask for them.
                        for (const Value& value : values) context.need(value);
                        note(context, Mark::At::block_begins, block, values);
                        context.record({}, [this, block](Context& ctx) {
                          note(ctx, Mark::At::backward_ended, block, {});
                        });
                        return values;
                      }});
  }
  void end_block() {
    const std::size_t block = blocks_.size() - 1;
    chain_.push_back({"mark", true, [this, block](Context& context, Values values) {
                        note(context, Mark::At::block_ended, block, values);
                        context.record({}, [this, block](Context& ctx) {
                          note(ctx, Mark::At::backward_begins, block, {});
                        });
                        return values;
                      }});
    blocks_.back().end = chain_.size();
  }
  void note(const Context& context, Mark::At at, std::size_t block, const Values& values) {
    const std::int64_t highest = follower_.advance();
    Mark mark{at, block, context.pass, follower_.live(), highest, 0, 0, context.work};
    for (const Value& value : values) {
      mark.data += Tensor::bytes_of(value->data.shape(), value->data.dtype());
      mark.statistics += value->statistics.bytes();
    }
    marks_.push_back(mark);
  }

  Follower follower_;
  Chain chain_;
  std::vector<UnitRange> blocks_;
  std::vector<Mark> marks_;
  bool ended_ = false;
};

// A tree over a marked chain.
class MarkedPlan final : public RetentionPlan {
 public:
  MarkedPlan(const MarkedChain& chain, SegmentTree tree) : chain_(chain), plan_(std::move(tree)) {}
  Values run(Context& context, const Chain&, Values inputs) const override {
    return plan_.run(context, chain_.chain(), std::move(inputs));
  }

 private:
  const MarkedChain& chain_;
  TreePlan plan_;
};

// The first part of the minibatch in which it is largest, as a minibatch.
Minibatch largest_part(const Task& task) {
  const std::unique_ptr<BatchPlan> plan = make_batch_plan(task.part_limit());
  Minibatch largest;
  std::int64_t most = -1;
  for (Minibatch minibatch : task.every_shape()) {
    const std::vector<std::int64_t> sizes = task.sample_sizes(minibatch);
    minibatch.samples = plan->parts(sizes).front().count;
    const std::int64_t size =
        std::accumulate(sizes.begin(), sizes.begin() + minibatch.samples, std::int64_t{0});
    if (size > most) most = size, largest = minibatch;
  }
  return largest;
}

class Profiler {
 public:
  Profiler(const RunSpec& spec, const Task& task, std::shared_ptr<Backend> target)
      : part_(largest_part(task)),
        backend_(make_null_backend(std::move(target))),
        trainer_(spec, task, *backend_, no_memory(), true),
        chain_(trainer_.chain(), trainer_.ledger().log()) {
    trainer_.initialize();
    std::size_t begin = 0;
    for (std::size_t block = 0; block < chain_.size(); ++block) {
      BlockProfile& profile = profile_.blocks.emplace_back();
      profile.units = {begin, begin + chain_.units(block)};
      profile.options.resize(std::size_t{1} << chain_.units(block));
      begin = profile.units.end;
      most_options_ = std::max(most_options_, profile.options.size());
    }
  }

  ChainProfile profile() {
    measure_segments();
    for (std::size_t option = 0; option < most_options_; ++option) measure_option(option);
    return std::move(profile_);
  }

 private:
  using At = Mark::At;
  std::size_t size() const { return chain_.size(); }
  std::vector<Mark> marks_of(SegmentTree tree) {
    trainer_.use_plan(std::make_unique<MarkedPlan>(chain_, std::move(tree)));
    trainer_.train(part_, 0);
    return chain_.take_marks();
  }

  // ---- plans

  // A block kept but for the units that `option` names.
  SegmentTree kept_block(std::size_t block, std::size_t option) const {
    SegmentTree tree;
    const std::size_t first = chain_.blocks(block, block + 1).begin + 1;
    for (std::size_t unit = 0; unit < chain_.units(block); ++unit)
      if (option >> unit & 1) tree.push_back({{first + unit, first + unit + 1}, {}});
    return tree;
  }
  SegmentTree kept_blocks(std::size_t option) const {
    SegmentTree tree;
    for (std::size_t block = 0; block < size(); ++block)
      for (SegmentNode& node : kept_block(block, option)) tree.push_back(std::move(node));
    return tree;
  }
  SegmentTree every_block(std::size_t option) const {
    SegmentTree tree;
    for (std::size_t block = 0; block < size(); ++block)
      tree.push_back({chain_.blocks(block, block + 1), kept_block(block, option)});
    return tree;
  }
  SegmentTree one_segment(SegmentTree inner) const {
    return {{chain_.blocks(0, size()), std::move(inner)}};
  }

  // ---- reading marks

  // From mark `begin` to mark `end`, of one run.
  static Stretch between(const std::vector<Mark>& marks, std::size_t begin, std::size_t end) {
    Stretch stretch;
    for (std::size_t i = begin + 1; i <= end; ++i)
      stretch.bytes = std::max(stretch.bytes, marks[i].highest - marks[begin].live);
    stretch.multiply_adds = marks[end].work.recompute - marks[begin].work.recompute;
    stretch.made_bytes = marks[end].work.recomputed_bytes - marks[begin].work.recomputed_bytes;
    return stretch;
  }
  // The first forward stretch of `block` in `pass`, up to the beginning of the next block if that
  // follows and `to_next`, else up to its own end (at most what it defers is missing).
  static Stretch forward(const std::vector<Mark>& marks, std::size_t block, Pass pass,
                         bool to_next) {
    for (std::size_t i = 0; i < marks.size(); ++i)
      if (marks[i].at == At::block_begins && marks[i].block == block && marks[i].pass == pass)
        return between(marks, i, i + (to_next ? 2 : 1));
    throw Error("a mark is missing");
  }
  static Stretch backward(const std::vector<Mark>& marks, std::size_t block) {
    for (std::size_t i = 0; i < marks.size(); ++i)
      if (marks[i].at == At::backward_begins && marks[i].block == block)
        return between(marks, i, i + 1);
    throw Error("a mark is missing");
  }
  // What a block's first pass leaves behind that its input's bytes and its output's are not.
  std::int64_t left_by(const std::vector<Mark>& marks, std::size_t block) const {
    const Mark& begin = marks[2 * block];
    const Mark& end = marks[block + 1 < size() ? 2 * block + 2 : 2 * block + 1];
    return (end.live - end.data - end.statistics) - (begin.live - begin.statistics);
  }
  bool is_last(std::size_t block) const { return block + 1 == size(); }

  // ---- measurements

  void measure_segments() {
    const std::vector<Mark> blocks = marks_of(every_block(0));
    const std::vector<Mark> whole = marks_of(one_segment(every_block(0)));
    const std::vector<Mark> long_inner = marks_of(
        one_segment({{chain_.blocks(0, size() - 1), {}}, {chain_.blocks(size() - 1, size()), {}}}));
    profile_.base = blocks[0].live - blocks[0].data;
    for (std::size_t i = 0; i < size(); ++i) {
      BlockProfile& block = profile_.blocks[i];
      block.input = blocks[2 * i].data;
      block.input_statistics = blocks[2 * i].statistics;
      block.output_gradient = blocks[2 * i + 1].data;
      block.statistics = left_by(blocks, i);
      block.first_of_segment = forward(blocks, i, Pass::first, !is_last(i));
      block.inside_segment = forward(whole, i, Pass::first, !is_last(i));
      if (is_last(i)) continue;  // no replay goes on after it
      block.replayed_first = forward(whole, i, Pass::replay, true);
      block.replayed_inside = forward(long_inner, i, Pass::replay, true);
    }
  }

  void measure_option(std::size_t option) {
    const std::vector<Mark> kept = marks_of(kept_blocks(option));
    const std::vector<Mark> replayed = marks_of(one_segment(kept_blocks(option)));
    const std::vector<Mark> alone = marks_of(every_block(option));
    for (std::size_t i = 0; i < size(); ++i) {
      BlockProfile& block = profile_.blocks[i];
      if (option >= block.options.size()) continue;
      BlockOption& measured = block.options[option];
      measured.held = left_by(kept, i) - block.statistics;
      measured.first = forward(kept, i, Pass::first, !is_last(i));
      measured.backward = backward(kept, i);
      measured.replayed_last = forward(alone, i, Pass::replay, false);
      if (!is_last(i)) measured.replayed = forward(replayed, i, Pass::replay, true);
    }
    // The loss runs between the last block's end and the beginning of its backward.
    const Mark& end = kept[2 * size() - 1];
    profile_.loss = kept[2 * size()].highest - end.live + end.data;
  }

  Minibatch part_;  // all of which is one part
  std::unique_ptr<Backend> backend_;
  Trainer trainer_;
  MarkedChain chain_;
  ChainProfile profile_;
  std::size_t most_options_ = 0;
};

}  // namespace

ChainProfile profile_chain(const RunSpec& spec, const Task& task, std::shared_ptr<Backend> target) {
  RunSpec plain = spec;
  plain.checkpoint = "none";
  plain.memory_budget = 0;
  return Profiler(plain, task, std::move(target)).profile();
}

}  // namespace memfloor
