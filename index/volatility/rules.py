"""Prompts whose answer changes by itself, or is another for each person: not to be kept.

Rules over the text alone, English and Chinese, each with its reason. They know phrases, not facts:
that a record may be broken some day is for a classifier to learn.
"""

import re
from collections.abc import Iterable
from re import Pattern

import msgspec

from index.volatility.ownpattern import OwnPattern, any_in, own_pattern

OWN = "volatile:pattern"
SLOW = "volatile:slow"
"""Reasons of a policy's own patterns."""

_MAX_END_CHARS = 200
_CHINESE = re.compile(r"[\u4e00-\u9fff]")


class Patterns(msgspec.Struct, frozen=True, kw_only=True):
    """The rules of one policy, and what excuses a prompt from all of them."""

    rules: tuple["VolatileRule", ...]
    own: tuple[OwnPattern, ...] = ()
    never: tuple[OwnPattern, ...] = ()

    def reason(self, prompt: str) -> str | None:
        """Reason of the first rule that holds, or None; `volatile:slow` when the policy's own
        patterns take too long to say."""
        if self.excuse(prompt):
            return None
        return volatile_by(self.rules, prompt) or self._own(prompt)

    def excuse(self, prompt: str) -> bool:
        """Whether the prompt is never taken for volatile, whatever else speaks for it."""
        try:
            return any_in(self.never, prompt)
        except TimeoutError:
            return False

    def _own(self, prompt: str) -> str | None:
        text = _ends(prompt)
        try:
            return OWN if any_in(self.own, text) else None
        except TimeoutError:
            return SLOW


class VolatileRule(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt that `pattern` is found in, and `unless` is not, is volatile or personal."""

    reason: str
    """`volatile:…` or `personal:…`; shown where the decision is shown."""
    pattern: Pattern[str]
    unless: Pattern[str] | None = None
    chinese: bool = False
    """Not worth trying on plain ASCII."""


def volatile_by(rules: tuple[VolatileRule, ...], prompt: str) -> str | None:
    """Reason of the first of `rules` that holds, or None: the answer may be kept."""
    text = _ends(prompt).replace("\u2019", "'")
    chinese = not text.isascii()
    for rule in rules:
        if rule.chinese and not chinese:
            continue
        if rule.pattern.search(text) and not (rule.unless and rule.unless.search(text)):
            return rule.reason
    return None


def volatile_rule(reason: str, pattern: str, *, unless: str | None = None) -> VolatileRule:
    """A rule from regular expressions, letter case aside. Raises `re.error` for a bad one."""
    return VolatileRule(
        reason=reason,
        pattern=re.compile(pattern, re.IGNORECASE),
        unless=None if unless is None else re.compile(unless, re.IGNORECASE),
        chinese=_CHINESE.search(pattern) is not None,
    )


def _ends(prompt: str) -> str:
    """Where the question stands. What lies between, in a long prompt, is material: a `today` in
    it says nothing of when the answer changes."""
    if len(prompt) <= 2 * _MAX_END_CHARS:
        return prompt
    return prompt[:_MAX_END_CHARS] + "\n" + prompt[-_MAX_END_CHARS:]


_DEFINED = r"\b(?:mean(?:s|ing)?|defin\w+|spell\w*|synonym\w*|translat\w+|explain)\b"
_NOW = (
    r"\b(?:today|tonight|tomorrow|yesterday|now|nowadays|currently|at (?:the|this) moment"
    r"|at present|presently|so far|as of|up to date|this (?:morning|afternoon|evening|week"
    r"|weekend"
    r"|month|quarter|year|season|summer|winter|spring|fall|autumn)"
    r"|(?:next|last|past|coming) (?:week|weekend|month|quarter|year|season)|these days|upcoming"
    r"|ongoing|right now|just now|still)\b"
)
_NEWEST = (
    r"\b(?:latest|newest|most recent(?:ly)?|recent(?:ly)?|current|breaking|real[- ]?time"
    r"|up[- ]to[- ]date|trending|last time|next)\b"
    # Not of who lives somewhere.
    r"|\blive (?:scores?|streams?|streaming|updates?|coverage|results?|news|feed|tv|traffic|prices?"
    r"|games?|match(?:es)?|shows?|concerts?|events?|music|now|today|tonight)\b"
)
_THINGS_OF_MINE = (
    r"(?:balance|account|card|bill|bills|order|orders|package|parcel|delivery|shipment|flight"
    r"|booking|reservation|appointment|appointments|meeting|meetings|schedule|calendar|agenda"
    r"|payment|payments|payday|paycheck|pay|salary|income|credit|score|limit|rewards?|points"
    r"|transactions?|spending|expenses?|statement|loan|mortgage|rent|insurance|policy"
    r"|subscription"
    r"|plan|pto|vacation|leave|days off|inbox|emails?|mail|messages?|texts?|contacts?|reminders?"
    r"|alarms?|list|to-?do|tasks?|notes?|location|tires?|data usage|usage"
    r"|account number|routing number|pin|passport|license|visa|warranty|ticket|tickets|grade"
    r"|grades"
    r"|results?|steps|heart rate|weight|playlist|device|apr|interest rate|due date"
    r"|minimum payment)"
)

RULES: tuple[VolatileRule, ...] = (
    volatile_rule(
        "volatile:weather",
        r"\b(?:weather|forecast|humidity|chance of (?:rain|snow|showers)|will it (?:rain|snow)"
        r"|is it (?:raining|snowing|cold|hot|sunny|cloudy|windy|humid|warm)"
        r"|temperature (?:in|at|outside|for|here)|(?:cold|hot|warm) outside)\b",
        unless=_DEFINED + r"|\bweather (?:a |the )?storm\b|\bhow (?:is|are) .* (?:made|formed)",
    ),
    volatile_rule(
        "volatile:clock",
        r"\bwhat(?:'s|s| is| was)? (?:the )?(?:current |exact )?(?:time|date|day|month|year)"
        r"(?: is it| is today| of the (?:week|month))?(?: (?:now|today"
        r"|in [\w ,]+))?\s*(?:please)?\??$"
        r"|\bwhat (?:time|day|month|year|date) is (?:it|this|today)\b"
        r"|\btime (?:is it )?(?:now|right now|zone .* now)\b|\btoday'?s date\b|\bthe time in\b",
    ),
    volatile_rule(
        "volatile:price",
        r"\b(?:stock|share|bitcoin|btc|ethereum|crypto\w*|gold|silver|oil|gas|petrol|fuel)"
        r"(?: \w+){0,2} (?:price|prices|worth|value|trading)\b"
        r"|\bprices? of (?:gold|silver|oil|gas|petrol|bitcoin|ethereum|stock)\b"
        r"|\bexchange rates?\b|\bconversion rate\b|\bmarket cap\b|\bnet worth\b"
        r"|\b(?:dollars?|euros?|pounds?|yen|rupees?|pesos?|usd|eur|gbp|yuan)\b.{0,30}"
        r"\b(?:in|to|into|worth|for|equal)\b.{0,30}"
        r"\b(?:dollars?|euros?|pounds?|yen|rupees?|pesos?|usd|eur|gbp|yuan|currency)\b",
    ),
    volatile_rule(
        "volatile:office",
        r"\bwho(?:'s|s| is| are| currently)? (?:the )?(?:\w+ ){0,3}(?:president|prime minister"
        r"|king"
        r"|queen|ceo|cfo|chair\w*|governor|mayor|minister|senators?|speaker|head coach|coach"
        r"|manager"
        r"|captain|champion\w*|pope|chancellor|secretary|director|owner|host|leader|holder"
        r"|commissioner|chief)\b",
        unless=r"\b(?:was|were|first|in (?:1\d|20)\d\d|during|when|19\d\d|[12]\d{3})\b",
    ),
    volatile_rule(
        "volatile:sport",
        r"\bwho (?:won|is winning|wins|leads|plays)\b.{0,60}\b(?:game|match|cup|title|series"
        r"|league"
        r"|election|race|award|bowl|final|finals|championship|season|tournament|oscar|grammy)\b"
        r"|\b(?:score|standings|lineup|fixtures?|odds)\b",
        unless=r"\b(?:1[5-9]\d\d|20\d\d)\b|credit|first|" + _DEFINED,
    ),
    volatile_rule(
        "volatile:record",
        r"\b(?:tallest|richest|wealthiest|highest[- ]paid|best[- ]selling|highest[- ]grossing"
        r"|oldest"
        r"|fastest|youngest|most (?:\w+ )?(?:followers|subscribers|views|goals|wins|titles|points"
        r"|medals|championships|grand slams|populous|streamed|liked|viewed|followed|popular"
        r"|watched"
        r"|expensive|valuable))\b.{0,40}\b(?:in the world|alive|living|ever|of all time"
        r"|in history"
        r"|on (?:youtube|instagram|twitter|tiktok|spotify))\b"
        r"|\bmost (?:followers|subscribers|viewed|followed|subscribed|streamed|liked)\b",
    ),
    volatile_rule(
        "volatile:ranking",
        r"\b(?:largest|biggest|richest|poorest|tallest|oldest|fastest|longest|strongest|top|best"
        r"|highest|lowest|leading|number one|most (?:populous|popular|powerful|valuable"
        r"|expensive))\b"
        r".{0,30}\b(?:compan(?:y|ies)|econom(?:y|ies)|countr(?:y|ies)|stat(?:e|es)|cit(?:y"
        r"|ies)|gdp"
        r"|industr(?:y|ies)|bank|banks|player|players|team|teams|actor|actress|goalkeeper"
        r"|speakers"
        r"|population|movie|movies|song|songs|show|universit(?:y|ies)|army|airline|building"
        r"|scorer"
        r"|brand|website|paid|grossing)\b"
        r"|\b(?:home run|scoring|world) (?:leader|record|champion)s?\b|\bmost \w+ (?:by|scored"
        r"|in) \b"
        r"|\b(?:cost|price|salary|wage|rate) of (?:a |an |the )?\w+\b|\bhow much (?:does|do|is"
        r"|are)\b"
        r".{0,40}\b(?:cost|worth|paid|make|earn|owe)\b|\bpercentage of\b.{0,40}\bpopulation\b",
        unless=r"\b(?:1[5-9]\d\d|20\d\d)\b|\bby area\b|\bbest (?:way|time|practice)|" + _DEFINED,
    ),
    volatile_rule(
        "volatile:counting",
        r"\bhow many (?:\w+ ){0,4}(?:seasons?|episodes?|subscribers|followers|users|employees"
        r"|people"
        r" (?:live|have|use)|countries (?:have|are)|stores|locations|members|goals|titles|wins"
        r"|grand slams|championships|movies|books|albums|super bowls|oscars|cases|deaths)\b"
        r"|\bpopulation of\b|\bhow old is\b|\bunemployment rate\b|\binflation rate\b"
        r"|\bminimum wage\b",
        unless=r"\b(?:season|episode|series) \d|\b(?:in|of) (?:1[5-9]\d\d|20\d\d)\b|\bearth\b"
        r"|\buniverse\b|\bsun\b",
    ),
    volatile_rule(
        "volatile:schedule",
        r"\bwhen (?:is|does|do|will|are)\b.{0,60}\b(?:start|begin|end|come out|release[ds]?"
        r"|open|close"
        r"|air|premiere|play|arrive|leave|land|depart|due|available|next)\b"
        r"|\b(?:release date|opening hours|flight status|train times?|bus times?|showtimes?"
        r"|playing (?:at|in) (?:the )?(?:cinema|theater|theatre)s?|traffic)\b",
        unless=r"\b(?:season|episode|series) \d|\b1[5-9]\d\d\b",
    ),
    volatile_rule(
        "volatile:random",
        r"\b(?:flip|toss) (?:a |the |me a )?coin\b|\bcoin (?:flip|toss)\b|\bheads or tails\b"
        r"|\broll (?:a |the |some |two )?(?:die|dice)\b|\brandom number\b|\bpick a (?:card"
        r"|number)\b"
        r"|\bsurprise me\b",
    ),
    volatile_rule(
        "volatile:news",
        r"\b(?:news|headlines|weather report|stock market|lottery|powerball|jackpot)\b"
        r"|\bwhat(?:'s| is) (?:happening|going on|new|on tv)\b",
        unless=_DEFINED,
    ),
    volatile_rule("volatile:now", _NOW, unless=_DEFINED),
    volatile_rule(
        "volatile:newest", _NEWEST, unless=_DEFINED + r"|\bnext to\b|\bcurrent (?:flow|in a)"
    ),
    volatile_rule(
        "personal:mine",
        r"\b(?:my|our|mine)\b(?: \w+){0,3}? " + _THINGS_OF_MINE + r"\b"
        r"|\b(?:do|did|have|am|was|can) i (?:have|owe|owed|spend|spent|earn|earned|used|paid"
        r"|supposed"
        r"|scheduled|eligible|afford|get paid|got)\b|\b(?:have|had) i (?:spent|used|earned"
        r"|paid)\b"
        r"|\bi (?:owe|earn|make a year|spent|have left)\b|\b(?:left|available"
        r"|remaining) (?:for|to) me\b"
        r"|\b(?:vacation|sick|leave|pto|days off)\b.{0,30}\b(?:i|me)\b|\bminimum payment\b"
        r"|\bwhere am i\b|\bmy location\b",
        unless=r"\bhow (?:do|can|should|would|could|to)\b(?!.*\b(?:much|many|long)\b)|\bwhy\b"
        r"|\bjump" + r"|\bdo i (?:have|need) to\b|" + _DEFINED,
    ),
    volatile_rule(
        "personal:around",
        r"\b(?:near me|nearby|around here|near here|closest|nearest|in my (?:area|city|town)"
        r"|where am i|what song is|song is (?:this|playing|on)|(?:this|that"
        r"|the) song (?:called|playing)|what (?:city|state|country|town|street|place) am i"
        r"|who(?:'s| is) calling)\b",
    ),
    volatile_rule(
        "volatile:天气",
        r"天气|气温|下雨|下雪|会下|雾霾|空气质量|温度.{0,4}(?:多少|几度)|冷不冷|热不热",
        unless=r"意思|翻译|成语|诗|作文",
    ),
    volatile_rule(
        "volatile:现在",
        r"今天|今日|明天|明日|昨天|后天|今晚|今早|明早|现在|目前|当前|最近|最新|刚刚|实时|近期|本周|这周|下周"
        r"|上周|本月|这个月|下个月|今年|明年|去年|周末|星期几|几点|几号|几月|什么时候|何时|几时|多久到|下一[场班]",
        unless=r"意思|翻译|怎么说|诗句|谜",
    ),
    volatile_rule(
        "volatile:行情",
        r"股价|股票|股市|汇率|金价|油价|房价|行情|大盘|基金净值|收盘|开盘|涨停|跌停|涨了|跌了|走势|指数|市值|上证|A股",
        unless=r"意思|翻译|什么是",
    ),
    volatile_rule(
        "volatile:班次",
        r"航班|机票|火车票|车票|列车|高铁|动车|火车|飞机|公交|公共汽车|长途汽车|汽车[票站。？]|到.{1,6}的?汽车|地铁|大巴|班车|时刻表|末班|首班|余票"
        r"|车次|路况|堵车"
        r"|电影院|影院|上映|票房|排片|影讯|节目单|节目表|节目|哪个台|什么台|有播|在播|在放|频道|卫视|直播|比分|赛程|赛事|比赛|战绩|积分榜|中超|英超|西甲"
        r"|意甲|德甲|欧冠|(?<![a-z])[NC]BA(?=[\u4e00-\u9fff])",
        unless=r"怎么做|意思|翻译|谜|晕车|晕机",
    ),
    volatile_rule(
        "volatile:新闻", r"新闻|头条|热点|彩票|双色球|大乐透|开奖|中奖号码|福彩|体彩|热搜"
    ),
    volatile_rule(
        "personal:我的",
        r"我的(?:账户|余额|订单|快递|包裹|银行卡|信用卡|积分|工资|日程|行程|邮件|短信|电话|联系人|航班|预约|会议|账单|位置|手机|通讯录|收件箱)"
        r"|(?:发|写|看|查|收|读|回)(?:一?[条封个下份])?(?:.{0,8})?(?:给.{1,8})?(?:短信|邮件|信息|微信|电邮|消息)|(?:给|跟"
        r"|帮我给).{1,10}(?:打电话|发短信|发信息|发邮件|回电|打个电话|回个)"
        r"|打(?:个)?电话|拨打|呼叫|拨号|通讯录|电话号码|的(?:电话|号码|手机号|邮箱|联系方式)|提醒我|闹钟|备忘|日程|附近|我在哪|余额|话费",
    ),
)
"""What is volatile or personal by default."""


def patterns_of(own: Iterable[str] = (), *, never: Iterable[str] = ()) -> Patterns:
    """The default rules, then `own` regular expressions, letter case aside; both are searched.

    Raises ValueError for a bad one.
    """
    return Patterns(
        rules=RULES, own=tuple(map(own_pattern, own)), never=tuple(map(own_pattern, never))
    )


def volatile(prompt: str) -> str | None:
    """Reason of the first default rule that holds, or None: the answer may be kept."""
    return volatile_by(RULES, prompt)
