#include "techniques/checkpointing/segment_tree.h"

#include <charconv>

#include "core/error.h"
#include "techniques/checkpointing/segment.h"

namespace memfloor {
namespace {

Values run_units(Context& context, const Chain& chain, UnitRange units, const SegmentTree& tree,
                 Values values) {
  const auto run_kept = [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) values = chain[i].forward(context, std::move(values));
  };
  std::size_t next = units.begin;
  for (const SegmentNode& segment : tree) {
    run_kept(next, segment.units.begin);
    next = segment.units.end;
    // A replay stops before its last unit's sums.
    static const std::vector<std::size_t> none;
    const Unit& first = chain[segment.units.begin];
    values = run_segment(
        context,
        [&chain, &segment](Context& ctx, Values in) {
          return run_units(ctx, chain, segment.units, segment.inner, std::move(in));
        },
        std::move(values), segment.units.size() == 1 ? first.summands : none);
  }
  run_kept(next, units.end);
  return values;
}

void write(std::string& text, const SegmentTree& tree) {
  for (const SegmentNode& segment : tree) {
    if (&segment != &tree.front()) text += ',';
    text += std::to_string(segment.units.begin);
    if (segment.units.size() > 1) text += '-' + std::to_string(segment.units.end - 1);
    if (segment.inner.empty()) continue;
    text += '[';
    write(text, segment.inner);
    text += ']';
  }
}

class Parser {
 public:
  Parser(const std::string& text, const Chain& chain) : text_(text), chain_(chain) {}

  SegmentTree parse() {
    at_ = kPrefix.size();
    SegmentTree tree = segments({0, chain_.size()});
    if (at_ != text_.size()) refuse("a comma or the end is expected");
    return tree;
  }

  static constexpr std::string_view kPrefix = "plan:";

 private:
  SegmentTree segments(UnitRange within) {
    SegmentTree tree;
    std::size_t next = within.begin;
    do {
      SegmentNode segment;
      segment.units.begin = segment.units.end = number();
      if (take('-')) segment.units.end = number();
      if (++segment.units.end <= segment.units.begin)
        refuse("a segment's last unit is not before its first");
      if (segment.units.begin < next)
        refuse(
            concat("segments come in order, do not overlap and lie inside those around them: "
                   "this one begins before unit ",
                   next));
      if (segment.units.end > within.end)
        refuse(within.end == chain_.size()
                   ? concat("the last unit is ", chain_.size() - 1, " (", chain_.back().name, ")")
                   : concat("the segment around this one ends with unit ", within.end - 1));
      next = segment.units.end;
      if (take('[')) {
        segment.inner = segments(segment.units);
        if (!take(']')) refuse("a comma or ']' is expected");
      }
      tree.push_back(std::move(segment));
    } while (take(','));
    return tree;
  }

  std::size_t number() {
    std::size_t value = 0;
    const char* begin = text_.data() + at_;
    const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), value);
    if (error == std::errc::result_out_of_range || value > chain_.size())
      value = chain_.size();  // past the last one, which is told
    else if (error != std::errc{})
      refuse("a unit's number is expected");
    at_ += static_cast<std::size_t>(end - begin);
    return value;
  }

  bool take(char c) {
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  [[noreturn]] void refuse(const std::string& why) const {
    throw InputError(concat("--checkpoint '", text_, "' is no plan, at character ", at_ + 1, ": ",
                            why, "; write it like plan:0,1-8[1-2,3-4],9"));
  }

  const std::string& text_;
  const Chain& chain_;
  std::size_t at_ = 0;
};

}  // namespace

Values TreePlan::run(Context& context, const Chain& chain, Values inputs) const {
  return run_units(context, chain, {0, chain.size()}, tree_, std::move(inputs));
}

std::string to_text(const SegmentTree& tree) {
  if (tree.empty()) return "none";
  std::string text(Parser::kPrefix);
  write(text, tree);
  return text;
}

SegmentTree parse_tree(const std::string& text, const Chain& chain) {
  return Parser(text, chain).parse();
}

}  // namespace memfloor
